"""Paths from the command line, manifests or single scans."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import InputRefused, cause_of
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import FIELD_INVALID, ITEMS_EMPTY, SCAN_MISSING, SCAN_UNREADABLE
from receipt_pipeline.core.request import DEFAULT_RELEASE, JOB_CONTRACT, ItemRequest, JobRequest
from receipt_pipeline.intake.accept import Arrival
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.listing import is_temporary
from receipt_pipeline.intake.manifest import MANIFEST_SUFFIXES, checked_key, parse_document
from receipt_pipeline.intake.scans import (
    FolderScans,
    ScanSource,
    hex_digest_of,
    list_loader,
    open_confined,
    read_document,
)
from receipt_pipeline.intake.submission import Delivered, deliver, refuse

ENTRY_POINT = "command"


@dataclass(frozen=True, slots=True)
class NamedScans:
    """Scans that a person named one by one, in any folder; from the uri of its position to its path."""

    paths: Mapping[str, Path]

    def confine(self, item: ItemRequest, pointer: str) -> None:
        """Accept every path: the caller named it."""

    def open(self, item: ItemRequest, pointer: str) -> int:
        """Open the named file; a link is followed, because the caller named it."""
        path = self.paths[item.uri].resolve()
        return open_confined(path.parent, path.name, pointer=pointer)


def submit_paths(
    intake: IntakeContext,
    paths: Sequence[Path],
    *,
    principal: Principal,
    key: str | None = None,
    new: bool = False,
    release: str | None = None,
) -> tuple[Delivered, ...]:
    """Submit everything that one command names, in order; single scans come last, as one job.

    A manifest is answered under its own key. For folders and scans the key is derived from caller
    and fingerprint, so that repeating the command finds the same job. `key` names the key of the
    one job that is submitted; `new` makes a new one. A refused delivery does not stop the others.

    Raises:
        InputRefused: FIELD.INVALID.v1 for key, new or release where they cannot apply, and for an invalid
            key; SCAN.MISSING.v1 for a path that does not exist. Nothing was submitted.
    """
    whole, scans = _split_paths(paths)
    if key is not None and (new or len(whole) + bool(scans) != 1):
        raise InputRefused(FIELD_INVALID, pointer="--key", expected="one job, and not --new")
    if key is not None:
        checked_key(key)
    options = _Options(principal, key, new, release)
    answers = [_submit_whole(intake, path, options) for path in whole]
    if scans:
        # The position distinguishes two scans with the same name; the name remains the label.
        named = {f"{at}/{path.name}": path for at, path in enumerate(scans)}
        label = scans[0].name if len(scans) == 1 else f"{len(scans)} scans"
        arrival = Arrival(principal, NamedScans(named), ENTRY_POINT, label)
        answers.append(_submit_named(intake, arrival, list(named), options))
    return tuple(answers)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command."""

    principal: Principal
    key: str | None
    new: bool
    release: str | None

    def chosen_key(self) -> str | None:
        """Return the key that the command names, or a new one if it asks for one."""
        return f"new-{uuid.uuid4().hex}" if self.new else self.key


def _split_paths(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return (manifests and folders of scans, single scans); a folder with manifests counts as these."""
    whole: list[Path] = []
    scans: list[Path] = []
    for path in paths:
        try:
            if not path.exists():
                raise InputRefused(SCAN_MISSING, pointer=str(path))
            if path.is_dir():
                manifests = sorted(found for found in path.iterdir() if is_manifest(found))
                whole.extend(manifests or [path])
                continue
        except OSError as error:  # A name that is too long, a folder that may not be read.
            raise InputRefused(SCAN_UNREADABLE, pointer=str(path), cause=cause_of(error)) from error
        (whole if is_manifest(path) else scans).append(path)
    return whole, scans


def is_manifest(path: Path) -> bool:
    """Return whether a file is a manifest by its suffix."""
    return path.suffix.lower() in MANIFEST_SUFFIXES and not is_temporary(path.name)


def _submit_whole(intake: IntakeContext, path: Path, options: _Options) -> Delivered:
    if path.is_dir():
        uris = [str(found.relative_to(path)) for found in sorted(path.rglob("*")) if _is_scan(found, path)]
        arrival = Arrival(options.principal, FolderScans(path), ENTRY_POINT, path.resolve().name)
        return _submit_named(intake, arrival, uris, options)
    folder, suffix = path.resolve().parent, path.suffix.lower()
    arrival = Arrival(options.principal, FolderScans(folder), ENTRY_POINT, path.name)
    try:
        document = read_document(arrival.scans, path.resolve().name, pointer="")
        key = options.chosen_key()
        if key is None and options.release is None:
            return deliver(intake, document, arrival, suffix=suffix)
        request = parse_document(document, suffix=suffix, load_list=list_loader(arrival.scans))
        if not isinstance(request, JobRequest) or key is None:
            expected = "key and release inside the manifest"
            raise InputRefused(FIELD_INVALID, pointer="--key, --new, --release", expected=expected)
    except InputRefused as error:
        return refuse(intake, arrival, error)
    return deliver(intake, replace(request, idempotency_key=key), arrival)


def _is_scan(path: Path, folder: Path) -> bool:
    steps = path.relative_to(folder).parts
    return path.is_file() and not any(is_temporary(step) for step in steps)


def _submit_named(intake: IntakeContext, arrival: Arrival, uris: Sequence[str], options: _Options) -> Delivered:
    try:
        if not uris:
            raise InputRefused(ITEMS_EMPTY)
        named = {uri: hash_scan(arrival.scans, uri, pointer=uri) for uri in uris}
    except InputRefused as error:
        return refuse(intake, arrival, error)
    request = scans_request(named, principal=options.principal, key=options.chosen_key(), release=options.release)
    return deliver(intake, request, arrival)


ITEM_ID_DIGITS = 16


def scans_request(
    named: Mapping[str, str], *, principal: Principal, key: str | None = None, release: str | None = None
) -> JobRequest:
    """Return a request for scans by uri and hex digest, under the key given or the derived one.

    An item id is the first 16 digits of the digest, with `-2` and so on for repeats; being
    generated, it never reuses an earlier decision.
    """
    seen: Counter[str] = Counter()
    items = []
    for uri, sha256 in named.items():
        stem = sha256[:ITEM_ID_DIGITS]
        seen[stem] += 1
        item_id = stem if seen[stem] == 1 else f"{stem}-{seen[stem]}"
        items.append(ItemRequest(item_id=item_id, uri=uri, sha256=sha256, id_explicit=False))
    request = JobRequest(
        contract=JOB_CONTRACT, idempotency_key="", items=tuple(items), release=release or DEFAULT_RELEASE
    )
    return replace(request, idempotency_key=key or derived_key(principal, request))


def derived_key(principal: Principal, request: JobRequest) -> str:
    """Return the key that the same caller gets for the same request."""
    digest = digest_of({"caller": principal.caller, "fingerprint": request.fingerprint})
    return f"derived-{digest.removeprefix('sha256:')}"


def hash_scan(source: ScanSource, uri: str, *, pointer: str) -> str:
    """Return the hex digest of one scan as it is now. Raises InputRefused when it cannot be read."""
    handle = source.open(ItemRequest(item_id="", uri=uri, sha256=""), pointer)
    try:
        return hex_digest_of(handle)
    except OSError as error:
        raise InputRefused(SCAN_UNREADABLE, pointer=pointer, cause=cause_of(error)) from error
    finally:
        os.close(handle)
