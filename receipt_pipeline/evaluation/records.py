"""Evaluations on record: evaluate a release, keep its document and page, and guard its approval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.release import ShippedRelease, shipped_releases
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.reasons import EVALUATION_ALTERED, EVALUATION_NO_SET, NOT_FOUND, RELEASE_WORSE
from receipt_pipeline.core.request import DEFAULT_RELEASE
from receipt_pipeline.durable_files import write_whole
from receipt_pipeline.evaluation.compare import Measured, compare_evaluations
from receipt_pipeline.evaluation.evaluate import release_evaluation
from receipt_pipeline.evaluation.page import render_evaluation
from receipt_pipeline.evaluation.scans import PROCESSES, classify_scans, read_labeled_scans
from receipt_pipeline.ledger import releases
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome

DOCUMENT, PAGE = "json", "html"
DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What evaluations of releases work with.

    Attributes:
        folder: of the documents and pages on record, one pair per release.
        artifacts: the shipped releases, models and policies.
        labeled_scans: the folder to evaluate on, None where none is set.
    """

    ledger: Ledger
    folder: Path
    artifacts: Path
    image_digest: str
    labeled_scans: Path | None


@dataclass(frozen=True, slots=True)
class Override:
    """A release that is worse by these measures, and the reason why a person approves it all the same."""

    release_id: str
    measures: tuple[str, ...]
    because: str


def find_shipped(evaluations: Evaluations, name: str) -> ShippedRelease:
    """Return a shipped release by its name or id. Raises NotFound."""
    for shipped in shipped_releases(evaluations.artifacts, image_digest=evaluations.image_digest):
        if name in (shipped.name, shipped.release.release_id):
            return shipped
    raise NotFound(NOT_FOUND, release=name)


def evaluate_release(evaluations: Evaluations, name: str, *, caller: str, processes: int = PROCESSES) -> dict[str, Any]:
    """Evaluate a shipped release on the labeled scans, keep the document and its page, record its digest.

    Document and page are hidden until they are on record: a crash leaves the earlier ones.

    Raises:
        InputRefused: EVALUATION.NO_SET.v1 when no folder of labeled scans is set or it holds none.
        NotFound: no shipped release of this name.
        NotAllowed: EVALUATION.ALTERED.v1 when the approved release's evaluation is not the recorded
            one; that release is to be evaluated again first.
    """
    release = find_shipped(evaluations, name)
    folder = evaluations.labeled_scans
    scans = read_labeled_scans(folder) if folder is not None and folder.is_dir() else []
    if not scans:
        raise InputRefused(EVALUATION_NO_SET, folder=str(folder or ""))
    decided = classify_scans(scans, release.release.pins(), shipped=evaluations.artifacts, processes=processes)
    document = release_evaluation(decided, release)
    release_id = release.release.release_id
    # Before anything is kept: an altered evaluation to compare with leaves all as it was.
    compared = _compared(evaluations, release_id, document)
    page = render_evaluation(
        document,
        {scan.scan_id: scan.picture for scan in scans},
        None if compared is None else [one.as_document() for one in compared],
    )
    stored = StoredEvaluations(evaluations.folder)
    digest = stored.write_hidden(release_id, document=canonical_json(document), page=page.encode())
    with evaluations.ledger.transaction() as tx:
        releases.record_evaluation(
            tx, release_id=release_id, document_digest=digest, set_digest=document["set_digest"], actor=caller
        )
    stored.publish(release_id, digest)
    return document


def evaluation_page(evaluations: Evaluations, name: str) -> Path:
    """Return the path of the page of a release's evaluation."""
    release_id = find_shipped(evaluations, name).release.release_id
    return StoredEvaluations(evaluations.folder).path(release_id, PAGE)


def release_no_worse(evaluations: Evaluations, name: str) -> CheckOutcome:
    """Return whether the evaluations on record say that a release is no worse than the approved one.

    The very condition that `receipts release approve` and `promote` check.
    """
    release_id = find_shipped(evaluations, name).release.release_id
    document = _recorded(evaluations, release_id)
    if document is None:
        return CheckOutcome(False, "the release was not evaluated", ({"measure": "none on record"},), "")
    compared = _compared(evaluations, release_id, document)
    if compared is None:
        return CheckOutcome(True, "it is the approved release, or that one was not evaluated on this set", (), "")
    worse = [one for one in compared if one.worse]
    measures = ", ".join(one.name for one in worse) or "no measure"
    return CheckOutcome(
        not worse,
        f"worse beyond noise than the approved release: {measures}",
        tuple(one.as_document() for one in worse),
        "",
    )


def check_not_worse(evaluations: Evaluations, name: str, *, despite: str | None) -> Override | None:
    """Refuse a release that is worse beyond noise, unless a person gives a reason.

    Returns:
        What is to be recorded in the transaction that approves it; None for a release that is no worse.
    Raises:
        NotAllowed: RELEASE.WORSE.v1, with the measures.
    """
    try:
        release_id = find_shipped(evaluations, name).release.release_id
    except NotFound:
        return None  # A release that is not shipped has no evaluation; the ledger says what it is.
    document = _recorded(evaluations, release_id)
    compared = None if document is None else _compared(evaluations, release_id, document)
    worse = tuple(one.name for one in compared or () if one.worse)
    if not worse:
        return None
    because = (despite or "").strip()
    if not because:
        raise NotAllowed(RELEASE_WORSE, release_id=release_id, measures=list(worse))
    return Override(release_id, worse, because)


def record_override(tx: LedgerTransaction, override: Override | None, *, caller: str) -> None:
    """Record why a worse release was approved, in the transaction that approves it."""
    if override is not None:
        releases.record_override(
            tx, release_id=override.release_id, measures=override.measures, actor=caller, because=override.because
        )


def _compared(evaluations: Evaluations, release_id: str, document: dict[str, Any]) -> tuple[Measured, ...] | None:
    """Compare with the release that `production` points at; None when it is the same or has no record."""
    with evaluations.ledger.reading() as tx:
        head = releases.alias_head(tx, DEFAULT_RELEASE)
    if head is None or head["release_id"] == release_id:
        return None
    approved = _recorded(evaluations, str(head["release_id"]))
    return None if approved is None else compare_evaluations(document, approved)


def _recorded(evaluations: Evaluations, release_id: str) -> dict[str, Any] | None:
    """Return the evaluation on record, None where there is none.

    Raises:
        NotAllowed: EVALUATION.ALTERED.v1 when the kept document is not the recorded one.
    """
    with evaluations.ledger.reading() as tx:
        recorded = releases.newest_evaluation(tx, release_id)
    if recorded is None:
        return None
    data = StoredEvaluations(evaluations.folder).document(release_id, recorded["document_digest"])
    if data is None:
        raise NotAllowed(EVALUATION_ALTERED, release_id=release_id)
    document: dict[str, Any] = json.loads(data)
    return document


@dataclass(frozen=True, slots=True)
class StoredEvaluations:
    """The documents and pages of evaluations, one pair per release.

    A pair is written under hidden names, recorded, and then takes the place of the one before. A pair
    that a crash left unrecorded is never shown; a recorded one is published by the next reader.
    """

    folder: Path

    def path(self, release_id: str, ending: str) -> Path:
        """Return the path of the document or the page of a release's evaluation on record."""
        return self.folder / f"{_stem(release_id)}.{ending}"

    def write_hidden(self, release_id: str, *, document: bytes, page: bytes) -> str:
        """Write a pair under hidden names; returns the document's digest, which is to be recorded."""
        digest = digest_of_bytes(document)
        write_whole(self._hidden(release_id, digest, PAGE), page)
        write_whole(self._hidden(release_id, digest, DOCUMENT), document)
        return digest

    def publish(self, release_id: str, digest: str) -> None:
        """Put the recorded pair in its place, the document last, and drop pairs that were never recorded."""
        for ending in (PAGE, DOCUMENT):
            hidden = self._hidden(release_id, digest, ending)
            if hidden.exists():
                hidden.replace(self.path(release_id, ending))
        for ending in (PAGE, DOCUMENT):
            for left in self.folder.glob(f".{_stem(release_id)}.*.{ending}"):
                left.unlink(missing_ok=True)

    def document(self, release_id: str, digest: str) -> bytes | None:
        """Return the recorded document; None when the kept one has another digest or is missing."""
        data = _read(self.path(release_id, DOCUMENT))
        if digest_of_bytes(data) != digest:
            self.publish(release_id, digest)
            data = _read(self.path(release_id, DOCUMENT))
        return data if digest_of_bytes(data) == digest else None

    def _hidden(self, release_id: str, digest: str, ending: str) -> Path:
        mark = digest.removeprefix("sha256:")[:DIGEST_DIGITS]
        return self.folder / f".{_stem(release_id)}.{mark}.{ending}"


def _stem(release_id: str) -> str:
    return release_id.removeprefix("sha256:")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
