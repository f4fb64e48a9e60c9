"""Process one dropped file until its acknowledgment."""

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
from receipt_pipeline.intake.accept import Arrival
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.listing import DroppedFile, FileKind
from receipt_pipeline.intake.inbox.moves import acknowledge, move_delivery, move_scans, scans_of
from receipt_pipeline.intake.manifest import OPEN_ENDED_SUFFIXES, Batch, parse_document
from receipt_pipeline.intake.scans import list_loader, read_document
from receipt_pipeline.intake.submission import finish_delivery, open_arrival, process_delivery
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


class ArrivalTimeout:
    """Decides whether a delivery still waits for its scans.

    A scan that is missing, unreadable or changing may arrive until `arrival_timeout_s` after the delivery.
    One with other bytes may still be growing, until its size has not changed for `debounce_s`.
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
        """Return what the next pass must know."""
        return {"still": self._still} if self._still else {}

    def final_refusal(self, refusal: InputRefused) -> InputRefused | None:
        """Return the final refusal, or None to look again in a later pass; `why` explains the last one."""
        reason = refusal.reason
        waits = (reason in MAY_STILL_COME and not self._overdue) or (
            reason in MAY_STILL_GROW and not self._overdue and not self._is_unchanged(refusal)
        )
        if waits:
            self.why = refusal.explain()
            return None
        if reason is not SCAN_MISSING:
            return refusal
        facts = dict(refusal.facts) | {"waited_s": self._limits.arrival_timeout_s}
        return InputRefused(INBOX_INCOMPLETE, pointer=refusal.pointer, **facts)

    def _is_unchanged(self, refusal: InputRefused) -> bool:
        size_bytes = int(refusal.facts["size_bytes"])
        now_us = (self._now - EPOCH) // MICROSECOND
        seen = self._before.get(refusal.pointer)
        since_us = seen[1] if seen is not None and seen[0] == size_bytes else now_us
        if len(self._still) < STILL_MAX:
            self._still[refusal.pointer] = [size_bytes, since_us]
        return now_us - since_us >= self._limits.debounce_s * 1_000_000


ENTRY_POINT = "inbox"
NOT_STABLE = "The file must stay unchanged first."
INCOMPLETE_DOCUMENT = frozenset({MANIFEST_NOT_JSON, MANIFEST_ENCODING})


class DroppedFiles:
    """The files of one pass: rows known before it, and which files it moved, named or left waiting."""

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
        """Record single scans when they appear and when they change: they must stay unchanged first."""
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
        """Process one file as far as possible; WAITING when a later pass must look again.

        Raises:
            PassEnded: the time limit was reached.
            ObjectFault, LedgerUnavailable: infrastructure failed; the file waits as it is.
        """
        return self._loose_scan(file) if file.kind is FileKind.LOOSE_SCAN else self._manifest(file)

    def _manifest(self, file: DroppedFile) -> SubmissionState:
        scans = scans_of(self._intake, file)
        try:
            document = read_document(scans, file.name, pointer="")
        except InputRefused as refusal:
            return self._unreadable(file, refusal)
        row = self._row_of(file, digest_of_bytes(document))
        if row["state"] != SubmissionState.WAITING:
            return self._finish(file, row, self._parsed(file, document))
        old_enough = self._is_old_enough(row)
        if file.suffix in OPEN_ENDED_SUFFIXES and not old_enough:
            return self._wait(file, row, NOT_STABLE, {})
        timeout = self._timeout(row)
        parsed: JobRequest | Batch | None = None
        try:
            parsed = parse_document(document, suffix=file.suffix, load_list=list_loader(scans))
            self._name_scans(file, parsed)
            left = self._process(parsed, self._arrival(file), row, timeout)
        except InputRefused as refusal:
            if parsed is None and refusal.reason in INCOMPLETE_DOCUMENT and not old_enough:
                return self._wait(file, row, "The file may still be incomplete.", {})
            final = timeout.final_refusal(refusal) if parsed is None else refusal
            if final is None:
                return self._wait(file, row, timeout.why, timeout.facts)
            return self._finish(file, row, parsed, error=final)
        except KeyConflict as conflict:
            return self._finish(file, row, parsed, error=conflict)
        if left:
            return self._wait(file, row, timeout.why, timeout.facts)
        return self._finish(file, row, parsed)

    def _loose_scan(self, file: DroppedFile) -> SubmissionState:
        row = self._known[file.place]
        if row["state"] != SubmissionState.WAITING:
            return self._finish(file, row, None, digest=self._missing_digest(file, row))
        if not self._is_old_enough(row):
            return self._wait(file, row, NOT_STABLE, None)
        arrival, timeout = self._arrival(file), self._timeout(row)
        try:
            sha256 = hash_scan(arrival.scans, file.name, pointer=file.name)
            request = scans_request({file.name: sha256}, principal=arrival.principal)
            left = self._process(request, arrival, row, timeout)
        except InputRefused as refusal:
            final = timeout.final_refusal(refusal)
            if final is None:
                return self._wait(file, row, timeout.why, None)
            return self._finish(file, row, None, error=final)
        if left:
            return self._wait(file, row, timeout.why, None)
        return self._finish(file, row, None, digest=f"sha256:{sha256}")

    def _is_old_enough(self, row: dict[str, Any]) -> bool:
        debounce_s = self._intake.limits.intake.debounce_s
        return bool(self._now - row["received_at"] >= dt.timedelta(seconds=debounce_s))

    def _timeout(self, row: dict[str, Any]) -> ArrivalTimeout:
        return ArrivalTimeout(row, now=self._now, limits=self._intake.limits.intake)

    def _process(
        self, parsed: JobRequest | Batch, arrival: Arrival, row: dict[str, Any], timeout: ArrivalTimeout
    ) -> int:
        return process_delivery(
            self._intake,
            parsed,
            arrival,
            row["submission_id"],
            time_is_up=self._time_is_up,
            final_refusal=timeout.final_refusal,
        )

    def _finish(
        self,
        file: DroppedFile,
        row: dict[str, Any],
        parsed: JobRequest | Batch | None,
        *,
        error: InputRefused | KeyConflict | None = None,
        digest: str | None = None,
    ) -> SubmissionState:
        """Finish a delivery, answer it and move its files; it can be repeated after a crash."""
        delivered = finish_delivery(self._intake, row["submission_id"], error=error, document_digest=digest)
        acknowledge(self._intake, file, delivered)
        if parsed is not None:
            move_scans(self._intake, file, parsed, delivered)
        if move_delivery(self._intake, file, delivered):
            self.moved.append(row["submission_id"])
        return delivered.state

    def _wait(self, file: DroppedFile, row: dict[str, Any], why: str, facts: dict[str, Any] | None) -> SubmissionState:
        self.waiting[file.place] = why
        if facts is not None and facts != row["facts"]:
            with self._intake.ledger.transaction() as tx:
                keep_facts(tx, row["submission_id"], facts)
        return SubmissionState.WAITING

    def _missing_digest(self, file: DroppedFile, row: dict[str, Any]) -> str | None:
        """Return the digest of a scan that was accepted right before a crash, None when it is recorded."""
        if row["document_digest"] or row["state"] not in (SubmissionState.ACCEPTED, SubmissionState.JOINED):
            return None
        scans = scans_of(self._intake, file)
        return f"sha256:{hash_scan(scans, file.name, pointer=file.name)}"

    def _unreadable(self, file: DroppedFile, refusal: InputRefused) -> SubmissionState:
        """Wait for a manifest that cannot be read yet, then refuse it."""
        row = self._row_of(file, "")
        final = self._timeout(row).final_refusal(refusal)
        if final is None:
            return self._wait(file, row, refusal.explain(), None)
        return self._finish(file, row, None, error=final)

    def _row_of(self, file: DroppedFile, digest: str) -> dict[str, Any]:
        """Return the row of exactly these bytes at this place, opening or restarting one."""
        row = self._known.get(file.place)
        if row is not None and row["document_digest"] == digest:
            return row
        with self._intake.ledger.transaction() as tx:
            if row is not None and row["state"] == SubmissionState.WAITING:
                # It was still being written, or was replaced while it waited; the new bytes count.
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
        return Arrival(principal, scans_of(self._intake, file), ENTRY_POINT, file.name, file.place)

    def _parsed(self, file: DroppedFile, document: bytes) -> JobRequest | Batch | None:
        loader = list_loader(scans_of(self._intake, file))
        try:
            return parse_document(document, suffix=file.suffix, load_list=loader)
        except InputRefused:
            return None

    def _name_scans(self, file: DroppedFile, parsed: JobRequest | Batch) -> None:
        """Remember which scans a manifest names, so they are not listed as unnamed."""
        folder = PurePosixPath(file.place).parent
        if isinstance(parsed, JobRequest):
            uris = [item.uri for item in parsed.items]
        else:
            uris = [row.request.items[0].uri for row in parsed.rows if row.request is not None]
        self.named.update(str(folder / uri) for uri in uris)


def _stamp(file: DroppedFile) -> dict[str, Any]:
    return {"stamp": [file.size_bytes, file.mtime_ns]}
