"""Bounded passes over the inbox."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from receipt_pipeline.core.errors import InputRefused, cause_of
from receipt_pipeline.core.reasons import INBOX_MISPLACED
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.file import DroppedFiles
from receipt_pipeline.intake.inbox.listing import REFUSAL_SUFFIX, DroppedFile, FileKind, InboxListing, list_inbox
from receipt_pipeline.intake.inbox.moves import write_document
from receipt_pipeline.intake.scans import PassEnded
from receipt_pipeline.ledger.submissions import (
    NewSubmission,
    SubmissionState,
    finish_submission,
    leave_place,
    open_submission,
    submissions_in_place,
)

ENTRY_POINT = "inbox"
NAMES_MAX = 100
LISTED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """The result of one pass.

    Attributes:
        counts: deliveries handled by state, `waiting` ones, `ignored` names, `pictures` that no
            manifest names, `misplaced` files; without zeros.
        ignored: the first places of temporary and side files.
        pictures: the first places of pictures without a manifest.
        finished: False when the time limit was reached, or another sweep is running.
    """

    counts: Mapping[str, int]
    ignored: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    finished: bool = True


def sweep_inbox(intake: IntakeContext, *, time_bound_s: float) -> SweepSummary:
    """Process dropped files within the time limit; the next pass continues.

    All progress is in the ledger: a pass may be killed anywhere and repeated at any time. A second
    sweep of the same data directory at the same time does nothing.

    Raises:
        ObjectFault, LedgerUnavailable: the pass stopped; its decisions are kept.
    """
    ends_at = time.monotonic() + time_bound_s
    intake.inbox.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(intake.home / "inbox.lock", timeout=0):
            return _sweep(intake, ends_at)
    except Timeout:
        return SweepSummary({}, finished=False)


def _sweep(intake: IntakeContext, ends_at: float) -> SweepSummary:
    listing = list_inbox(intake.inbox)
    with intake.ledger.reading() as tx:
        known, now = submissions_in_place(tx), tx.now()
    _forget_gone(intake, listing, known)
    dropped = DroppedFiles(intake, known, now=now, time_is_up=lambda: time.monotonic() >= ends_at)
    counts: Counter[str] = Counter()
    counts["misplaced"] = _refuse_misplaced(intake, listing.of_kind(FileKind.MISPLACED), known)
    ignored = listing.of_kind(FileKind.IGNORED)
    _record_ignored(intake, ignored, known)
    dropped.note_loose(listing.of_kind(FileKind.LOOSE_SCAN))
    finished = True
    try:
        files = _in_fair_order(listing.of_kind(FileKind.MANIFEST, FileKind.LOOSE_SCAN), known)
        for number, file in enumerate(files):
            if number and time.monotonic() >= ends_at:
                raise PassEnded
            counts[_process(dropped, file).value] += 1
    except PassEnded:
        finished = False
    finally:
        with intake.ledger.transaction() as tx:
            leave_place(tx, dropped.moved)
    pictures = _unnamed(intake, listing, dropped.named) if finished else []
    counts |= Counter(ignored=len(ignored), pictures=len(pictures))
    if finished:
        _write_folder_documents(intake, listing, ignored, pictures, dropped.waiting)
    return SweepSummary(
        counts={name: count for name, count in counts.items() if count},
        ignored=tuple(file.place for file in ignored[:NAMES_MAX]),
        pictures=tuple(pictures[:NAMES_MAX]),
        finished=finished,
    )


def _process(dropped: DroppedFiles, file: DroppedFile) -> SubmissionState:
    """Process one file; it waits when its answer cannot be written, without delaying others."""
    try:
        return dropped.handle(file)
    except OSError as error:
        dropped.waiting[file.place] = f"The answer cannot be written ({cause_of(error)})."
        return SubmissionState.WAITING


def _in_fair_order(files: Iterable[DroppedFile], known: Mapping[str, dict[str, Any]]) -> list[DroppedFile]:
    """Return the files in fair order: tenants alternate, new files first, then the longest unseen."""
    by_tenant: dict[str, list[DroppedFile]] = {}
    for file in files:
        by_tenant.setdefault(file.tenant, []).append(file)
    never = dt.datetime.min.replace(tzinfo=dt.UTC)

    def last_seen(file: DroppedFile) -> dt.datetime:
        row = known.get(file.place)
        return never if row is None else row["updated_at"]

    turns = [sorted(listed, key=last_seen) for listed in by_tenant.values()]
    rounds = itertools.zip_longest(*turns)
    return [file for taken in rounds for file in taken if file is not None]


def _forget_gone(intake: IntakeContext, listing: InboxListing, known: dict[str, dict[str, Any]]) -> None:
    """Forget places that are empty now: files moved before a crash, or removed."""
    present = {file.place for file in listing.files}
    gone = [row for place, row in known.items() if place not in present]
    if not gone:
        return
    with intake.ledger.transaction() as tx:
        for row in gone:
            known.pop(row["place"])
            if row["state"] == SubmissionState.WAITING:
                finish_submission(tx, row["submission_id"], state=SubmissionState.IGNORED, rows_total=0)
        leave_place(tx, [row["submission_id"] for row in gone])


def _refuse_misplaced(intake: IntakeContext, files: list[DroppedFile], known: Mapping[str, dict[str, Any]]) -> int:
    """Write a refusal next to every file in a place that is not read; it is recorded once."""
    for file in files:
        refusal = InputRefused(INBOX_MISPLACED, file=file.name)
        if file.place not in known:
            _record(intake, file, SubmissionState.REFUSED, refusal)
        answer = intake.inbox / (file.place + REFUSAL_SUFFIX)
        with suppress(OSError):  # The record is kept; a read-only folder does not delay others.
            if not answer.exists():
                write_document(answer, refusal.as_document())
    return len(files)


def _record_ignored(intake: IntakeContext, files: list[DroppedFile], known: Mapping[str, dict[str, Any]]) -> None:
    """Record ignored names, once each."""
    for file in files:
        if file.place not in known:
            _record(intake, file, SubmissionState.IGNORED, None)


def _record(intake: IntakeContext, file: DroppedFile, state: SubmissionState, refusal: InputRefused | None) -> None:
    with intake.ledger.transaction() as tx:
        submission_id = open_submission(
            tx,
            NewSubmission(
                tenant=file.tenant,
                caller=intake.inbox_caller,
                door=ENTRY_POINT,
                label=file.name,
                place=file.place,
                document_digest="",
            ),
        )
        finish_submission(tx, submission_id, state=state, rows_total=0, error=refusal)


def _unnamed(intake: IntakeContext, listing: InboxListing, named: set[str]) -> list[str]:
    """Return pictures beyond the arrival timeout that no waiting manifest names.

    Their age comes from the file system and decides nothing: they are only listed.
    """
    oldest_ns = time.time_ns() - int(intake.limits.intake.arrival_timeout_s * 1_000_000_000)
    pictures = listing.of_kind(FileKind.PICTURE)
    return [file.place for file in pictures if file.place not in named and file.mtime_ns <= oldest_ns]


def _write_folder_documents(
    intake: IntakeContext,
    listing: InboxListing,
    ignored: list[DroppedFile],
    pictures: list[str],
    waiting: Mapping[str, str],
) -> None:
    """Write the unprocessed files of each tenant, for people who can only read files."""
    for tenant in listing.tenants:

        def own(places: Iterable[str], tenant: str = tenant) -> list[str]:
            return [place for place in places if place.startswith(f"{tenant}/")][:LISTED_MAX]

        document = {
            "waiting": {place: waiting[place] for place in own(waiting)},
            "pictures_without_manifest": own(pictures),
            "ignored": own(file.place for file in ignored),
        }
        path: Path = intake.outbox(tenant) / "inbox.json"
        with suppress(OSError):  # The next pass writes it; the documents of others are written now.
            if any(document.values()) or path.exists():
                write_document(path, document)
