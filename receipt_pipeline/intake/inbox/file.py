"""One dropped file, from reading to its acknowledgement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, KeyConflict
from receipt_pipeline.core.limits import IntakeLimits
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import (
    INBOX_INCOMPLETE,
    MANIFEST_ENCODING,
    MANIFEST_NOT_JSON,
    SCAN_CHANGING,
    SCAN_DIGEST,
    SCAN_MISSING,
    SCAN_SIZE,
    SCAN_UNREADABLE,
)
from receipt_pipeline.core.request import JobRequest
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.listing import DroppedFile, FileKind
from receipt_pipeline.intake.inbox.moves import acknowledge, move_delivery, move_scans, scans_of
from receipt_pipeline.intake.manifest import OPEN_ENDED_SUFFIXES, Batch, parse_document
from receipt_pipeline.intake.scans import list_loader, read_document
from receipt_pipeline.intake.submission import Arrival, open_arrival, process_delivery, settle
from receipt_pipeline.intake.submit import hash_scan, scans_request
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND
from receipt_pipeline.ledger.submissions import (
    SubmissionState,
    finish_submission,
    keep_facts,
    leave_place,
    restart_submission,
)

STILL_MAX = 200
MAY_STILL_COME = frozenset({SCAN_MISSING, SCAN_UNREADABLE, SCAN_CHANGING})
MAY_STILL_GROW = frozenset({SCAN_SIZE, SCAN_DIGEST})


class Patience:
    """What one waiting delivery waits for, and since when.

    A scan that is missing, unreadable or changing may come until `arrival_timeout_s` after the
    delivery. One that is there with other bytes may still be growing; once its size stood still
    for `debounce_s`, it is what it is.
    """

    def __init__(self, submission: dict[str, Any], *, now: dt.datetime, limits: IntakeLimits) -> None:
        self._now = now
        self._limits = limits
        self._overdue = now - submission["received_at"] >= dt.timedelta(seconds=limits.arrival_timeout_s)
        self._before: dict[str, list[int]] = submission["facts"].get("still", {})
        self._still: dict[str, list[int]] = {}
        self.why = "nothing"

    @property
    def facts(self) -> dict[str, Any]:
        """Return what the next pass has to know."""
        return {"still": self._still} if self._still else {}

    def judge(self, refusal: InputRefused) -> InputRefused | None:
        """Return the refusal that stands, or None to look again in a later pass; `why` tells the last one."""
        judged = self._judged(refusal)
        if judged is None:
            self.why = refusal.explain()
        return judged

    def _judged(self, refusal: InputRefused) -> InputRefused | None:
        if refusal.reason in MAY_STILL_COME:
            return self._incomplete(refusal) if self._overdue else None
        if refusal.reason in MAY_STILL_GROW:
            return refusal if self._overdue or self._stands_still(refusal) else None
        return refusal

    def _incomplete(self, refusal: InputRefused) -> InputRefused:
        if refusal.reason is not SCAN_MISSING:
            return refusal
        facts = dict(refusal.facts) | {"waited_s": self._limits.arrival_timeout_s}
        return InputRefused(INBOX_INCOMPLETE, pointer=refusal.pointer, **facts)

    def _stands_still(self, refusal: InputRefused) -> bool:
        size_bytes = int(refusal.facts["size_bytes"])
        now_us = (self._now - EPOCH) // MICROSECOND
        seen = self._before.get(refusal.pointer)
        since_us = seen[1] if seen is not None and seen[0] == size_bytes else now_us
        if len(self._still) < STILL_MAX:
            self._still[refusal.pointer] = [size_bytes, since_us]
        return now_us - since_us >= self._limits.debounce_s * 1_000_000


DOOR = "inbox"
CUT_SHORT = frozenset({MANIFEST_NOT_JSON, MANIFEST_ENCODING})


class DroppedFiles:
    """The files of one pass: rows known before it, and what it moved, named and left waiting."""

    def __init__(
        self,
        intake: IntakeContext,
        known: dict[str, dict[str, Any]],
        *,
        now: dt.datetime,
        time_is_up: Callable[[], bool],
    ) -> None:
        self._intake = intake
        self._known = known
        self._now = now
        self._time_is_up = time_is_up
        self.moved: list[str] = []
        self.named: set[str] = set()
        self.waiting: dict[str, str] = {}

    def note_loose(self, files: Iterable[DroppedFile]) -> None:
        """Note loose scans at first sight, and anew whenever they changed: they must stand still."""
        changed = [file for file in files if not self._unchanged(file)]
        if not changed:
            return
        with self._intake.ledger.transaction() as tx:
            for file in changed:
                row = self._known.get(file.place)
                if row is not None and row["state"] == SubmissionState.WAITING:
                    restart_submission(tx, row["submission_id"], document_digest="", facts=_stamp(file))
                    row |= {"received_at": self._now, "facts": _stamp(file)}
                    continue
                if row is not None:
                    leave_place(tx, [row["submission_id"]])
                self._known[file.place] = self._opened(tx, file, digest="", facts=_stamp(file))

    def handle(self, file: DroppedFile) -> SubmissionState:
        """Take one file in as far as possible; WAITING when a later pass must look again.

        Raises:
            PassEnded: the time bound was reached in the middle of it.
            ObjectFault, LedgerUnavailable: infrastructure failed; the file waits as it is.
        """
        take = self._loose_scan if file.kind is FileKind.LOOSE_SCAN else self._manifest
        return take(file)

    def _manifest(self, file: DroppedFile) -> SubmissionState:
        scans = scans_of(self._intake, file)
        try:
            document = read_document(scans, file.name, pointer="")
        except InputRefused as refusal:
            return self._unreadable(file, refusal)
        row = self._row_of(file, digest_of_bytes(document))
        if row["state"] != SubmissionState.WAITING:
            return self._finish(file, row, self._parsed(file, document))
        still = self._now - row["received_at"] >= dt.timedelta(seconds=self._intake.limits.intake.debounce_s)
        if file.suffix in OPEN_ENDED_SUFFIXES and not still:
            return self._wait(file, row, "it must stand still first", {})
        patience = Patience(row, now=self._now, limits=self._intake.limits.intake)
        parsed: JobRequest | Batch | None = None
        try:
            parsed = parse_document(document, suffix=file.suffix, load_list=list_loader(scans))
            self._name_scans(file, parsed)
            left = process_delivery(
                self._intake,
                parsed,
                self._arrival(file),
                row["submission_id"],
                time_is_up=self._time_is_up,
                judge=patience.judge,
            )
        except InputRefused as refusal:
            if parsed is None and refusal.reason in CUT_SHORT and not still:
                return self._wait(file, row, "it may still be written", {})
            judged = patience.judge(refusal) if parsed is None else refusal
            if judged is None:
                return self._wait(file, row, patience.why, patience.facts)
            return self._finish(file, row, parsed, error=judged)
        except KeyConflict as conflict:
            return self._finish(file, row, parsed, error=conflict)
        if left:
            return self._wait(file, row, patience.why, patience.facts)
        return self._finish(file, row, parsed)

    def _loose_scan(self, file: DroppedFile) -> SubmissionState:
        row = self._known[file.place]
        if row["state"] != SubmissionState.WAITING:
            return self._finish(file, row, None, digest=self._digest_left_out(file, row))
        if self._now - row["received_at"] < dt.timedelta(seconds=self._intake.limits.intake.debounce_s):
            return self._wait(file, row, "it must stand still first", None)
        arrival = self._arrival(file)
        patience = Patience(row, now=self._now, limits=self._intake.limits.intake)
        try:
            sha256 = hash_scan(arrival.scans, file.name, pointer=file.name)
            request = scans_request({file.name: sha256}, principal=arrival.principal)
            left = process_delivery(
                self._intake,
                request,
                arrival,
                row["submission_id"],
                time_is_up=self._time_is_up,
                judge=patience.judge,
            )
        except InputRefused as refusal:
            judged = patience.judge(refusal)
            if judged is None:
                return self._wait(file, row, patience.why, None)
            return self._finish(file, row, None, error=judged)
        if left:
            return self._wait(file, row, patience.why, None)
        return self._finish(file, row, None, digest=f"sha256:{sha256}")

    def _finish(
        self,
        file: DroppedFile,
        row: dict[str, Any],
        parsed: JobRequest | Batch | None,
        *,
        error: InputRefused | KeyConflict | None = None,
        digest: str | None = None,
    ) -> SubmissionState:
        """Settle a delivery, answer it and move its files along; repeated after a crash, harmlessly."""
        delivered = settle(self._intake, row["submission_id"], error=error, document_digest=digest)
        acknowledge(self._intake, file, delivered)
        if parsed is not None:
            move_scans(self._intake, file, parsed, delivered)
        if move_delivery(self._intake, file, delivered):
            self.moved.append(row["submission_id"])
        return delivered.state

    def _wait(
        self, file: DroppedFile, row: dict[str, Any], why: str, facts: dict[str, Any] | None
    ) -> SubmissionState:
        self.waiting[file.place] = why
        if facts is not None and facts != row["facts"]:
            with self._intake.ledger.transaction() as tx:
                keep_facts(tx, row["submission_id"], facts)
        return SubmissionState.WAITING

    def _digest_left_out(self, file: DroppedFile, row: dict[str, Any]) -> str | None:
        """Return the digest of a scan that was accepted right before a crash, None when it is noted."""
        if row["document_digest"] or row["state"] not in (SubmissionState.ACCEPTED, SubmissionState.JOINED):
            return None
        scans = scans_of(self._intake, file)
        return f"sha256:{hash_scan(scans, file.name, pointer=file.name)}"

    def _unreadable(self, file: DroppedFile, refusal: InputRefused) -> SubmissionState:
        """Wait for a manifest that cannot be read yet, then refuse it."""
        row = self._row_of(file, "")
        judged = Patience(row, now=self._now, limits=self._intake.limits.intake).judge(refusal)
        if judged is None:
            return self._wait(file, row, refusal.explain(), None)
        return self._finish(file, row, None, error=judged)

    def _row_of(self, file: DroppedFile, digest: str) -> dict[str, Any]:
        """Return the row of exactly these bytes at this place, opening or restarting one."""
        row = self._known.get(file.place)
        if row is not None and row["document_digest"] == digest:
            return row
        with self._intake.ledger.transaction() as tx:
            if row is not None and row["state"] == SubmissionState.WAITING:
                # It was still being written, or was replaced while it waited: these bytes count now.
                finish_submission(tx, row["submission_id"], state=SubmissionState.IGNORED, rows_total=0)
            if row is not None:
                leave_place(tx, [row["submission_id"]])
            row = self._opened(tx, file, digest=digest, facts={})
        self._known[file.place] = row
        return row

    def _opened(
        self, tx: LedgerTransaction, file: DroppedFile, *, digest: str, facts: dict[str, Any]
    ) -> dict[str, Any]:
        submission_id = open_arrival(tx, self._arrival(file), document_digest=digest, facts=facts)
        return {
            "submission_id": submission_id,
            "place": file.place,
            "document_digest": digest,
            "state": SubmissionState.WAITING,
            "facts": facts,
            "received_at": self._now,
            "updated_at": self._now,
        }

    def _unchanged(self, file: DroppedFile) -> bool:
        row = self._known.get(file.place)
        return row is not None and row["facts"].get("stamp") == _stamp(file)["stamp"]

    def _arrival(self, file: DroppedFile) -> Arrival:
        principal = Principal(file.tenant, self._intake.inbox_caller, frozenset({Role.SUBMITTER}))
        return Arrival(principal, scans_of(self._intake, file), DOOR, file.name, file.place)

    def _parsed(self, file: DroppedFile, document: bytes) -> JobRequest | Batch | None:
        loader = list_loader(scans_of(self._intake, file))
        try:
            return parse_document(document, suffix=file.suffix, load_list=loader)
        except InputRefused:
            return None

    def _name_scans(self, file: DroppedFile, parsed: JobRequest | Batch) -> None:
        """Remember which pictures a manifest names, so that they are not listed as left alone."""
        folder = PurePosixPath(file.place).parent
        if isinstance(parsed, JobRequest):
            uris = [item.uri for item in parsed.items]
        else:
            uris = [row.request.items[0].uri for row in parsed.rows if row.request is not None]
        self.named.update(str(folder / uri) for uri in uris)


def _stamp(file: DroppedFile) -> dict[str, Any]:
    return {"stamp": [file.size_bytes, file.mtime_ns]}
