"""Evaluation of a home's releases: score one on a labelled set, compare, and guard its approval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.app.kept_evaluations import PAGE, KeptEvaluations
from receipt_pipeline.app.operations import OperationOrders
from receipt_pipeline.chain.release import ShippedRelease, shipped_releases
from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import (
    EVALUATION_ALTERED,
    EVALUATION_NO_SET,
    FIELD_INVALID,
    NOT_FOUND,
    RELEASE_WORSE,
)
from receipt_pipeline.core.request import DEFAULT_RELEASE
from receipt_pipeline.evaluation.compare import Measured, compare_evaluations
from receipt_pipeline.evaluation.evaluate import release_evaluation
from receipt_pipeline.evaluation.page import render_evaluation
from receipt_pipeline.evaluation.scans import PROCESSES, judge_scans, read_labelled_scans
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome
from receipt_pipeline.ledger.releases import (
    alias_head,
    approve_release,
    list_releases,
    move_alias,
    newest_evaluation,
    record_evaluation,
    record_override,
    resolve_release,
)
from receipt_pipeline.settings import NAME


@dataclass(frozen=True, slots=True)
class _Allowed:
    """A release that is worse by these measures, and why a person lets it through."""

    release_id: str
    measures: tuple[str, ...]
    because: str


class EvaluationOrders(OperationOrders):
    """What an operator asks of releases before one of them is approved."""

    def evaluate_release(self, name: str, *, processes: int = PROCESSES) -> dict[str, Any]:
        """Score a shipped release on the labelled set, keep the document and its page, record its digest.

        Document and page are out of sight until they are on record: a crash leaves the earlier ones.

        Raises:
            InputRefused: EVALUATION.NO_SET.v1 when no folder of labelled scans is set or it holds none.
            NotFound: no shipped release of this name.
            NotAllowed: EVALUATION.ALTERED.v1 when the approved release's evaluation is not the
                recorded one; that release is to be evaluated again first.
        """
        require(self.principal, Role.OPERATOR)
        release = self._shipped(name)
        folder = self.settings.evaluation_set
        scans = read_labelled_scans(folder) if folder is not None and folder.is_dir() else []
        if not scans:
            raise InputRefused(EVALUATION_NO_SET, folder=str(folder or ""))
        judged = judge_scans(
            scans, release.release.pins(), shipped=self.settings.shipped, processes=processes
        )
        document = release_evaluation(judged, release)
        release_id = release.release.release_id
        # Asked before anything is kept: an altered evaluation to compare with leaves all as it was.
        compared = self._compared(release_id, document)
        page = render_evaluation(
            document,
            {scan.scan_id: scan.picture for scan in scans},
            None if compared is None else [one.as_document() for one in compared],
        )
        digest = self._kept.write_aside(release_id, document=canonical_json(document), page=page.encode())
        with self.ledger.transaction() as tx:
            record_evaluation(
                tx,
                release_id=release_id,
                document_digest=digest,
                set_digest=document["set_digest"],
                actor=self.settings.caller,
            )
        self._kept.settle(release_id, digest)
        return document

    def evaluation_page(self, name: str) -> Path:
        """Return where the page of a release's evaluation lies."""
        return self._kept.place(self._shipped(name).release.release_id, PAGE)

    def release_no_worse(self, name: str) -> CheckOutcome:
        """Tell whether the evaluations on record say that a release is no worse than the approved one.

        The very question that `receipts release approve` and `promote` ask.
        """
        release = self._shipped(name)
        document = self._evaluation(release.release.release_id)
        if document is None:
            return CheckOutcome(False, "the release was not evaluated", ({"measure": "none on record"},), "")
        compared = self._compared(release.release.release_id, document)
        if compared is None:
            return CheckOutcome(
                True, "it is the approved release, or that one was not evaluated on this set", (), ""
            )
        worse = [one for one in compared if one.worse]
        said = ", ".join(one.name for one in worse) or "no measure"
        return CheckOutcome(
            not worse,
            f"worse beyond noise than the approved release: {said}",
            tuple(one.as_document() for one in worse),
            "",
        )

    def approve_release(self, name: str, *, despite: str | None = None) -> str:
        """Approve a shipped release completed for this installation; returns its id.

        Raises:
            NotAllowed: RELEASE.WORSE.v1 when its evaluation on record says that it is worse, and no
                person says why it is approved all the same.
        """
        require(self.principal, Role.OPERATOR)
        shipped = self._shipped(name)
        allowed = self._allowed(name, despite=despite)
        with self.ledger.transaction() as tx:
            self._record(tx, allowed)
            return approve_release(tx, shipped.release, name=shipped.name, approved_by=self.settings.caller)

    def promote_release(self, written: str, *, alias: str, despite: str | None = None) -> str:
        """Let an alias point at an approved release, named by name or id; returns its id.

        An alias that a release is called by would hide that release, and is refused.

        Raises:
            NotAllowed: RELEASE.WORSE.v1 as for `approve_release`.
        """
        require(self.principal, Role.OPERATOR)
        if not NAME.fullmatch(alias):
            raise InputRefused(FIELD_INVALID, pointer="--alias", expected=NAME.pattern)
        allowed = self._allowed(written, despite=despite)
        with self.ledger.transaction() as tx:
            if alias in {row["name"] for row in list_releases(tx)}:
                raise InputRefused(FIELD_INVALID, pointer="--alias", expected="no release's name")
            release_id = str(resolve_release(tx, written)["release_id"])
            self._record(tx, allowed)
            move_alias(tx, alias=alias, release_id=release_id, moved_by=self.settings.caller)
            return release_id

    def _allowed(self, written: str, *, despite: str | None) -> _Allowed | None:
        """Refuse what is worse beyond noise; a named person's reason lets it through.

        Returns:
            What is to be recorded in the transaction that lets it through; None for what is no worse.
        Raises:
            NotAllowed: RELEASE.WORSE.v1, with the measures.
        """
        try:
            release_id = self._shipped(written).release.release_id
        except NotFound:
            return None  # What does not ship here has no evaluation; who is asked next says what it is.
        document = self._evaluation(release_id)
        compared = None if document is None else self._compared(release_id, document)
        worse = tuple(one.name for one in compared or () if one.worse)
        if not worse:
            return None
        because = (despite or "").strip()
        if not because:
            raise NotAllowed(RELEASE_WORSE, release_id=release_id, measures=list(worse))
        return _Allowed(release_id, worse, because)

    def _record(self, tx: LedgerTransaction, allowed: _Allowed | None) -> None:
        if allowed is not None:
            record_override(
                tx,
                release_id=allowed.release_id,
                measures=allowed.measures,
                actor=self.settings.caller,
                because=allowed.because,
            )

    def _compared(self, release_id: str, document: dict[str, Any]) -> tuple[Measured, ...] | None:
        """Compare with what `production` points at; None where that is the same or nothing on record."""
        with self.ledger.reading() as tx:
            head = alias_head(tx, DEFAULT_RELEASE)
        if head is None or head["release_id"] == release_id:
            return None
        standing = self._evaluation(str(head["release_id"]))
        return None if standing is None else compare_evaluations(document, standing)

    def _evaluation(self, release_id: str) -> dict[str, Any] | None:
        """Return the evaluation on record, None where there is none.

        Raises:
            NotAllowed: EVALUATION.ALTERED.v1 when the kept document is not the recorded one.
        """
        with self.ledger.reading() as tx:
            recorded = newest_evaluation(tx, release_id)
        if recorded is None:
            return None
        data = self._kept.document(release_id, recorded["document_digest"])
        if data is None:
            raise NotAllowed(EVALUATION_ALTERED, release_id=release_id)
        document: dict[str, Any] = json.loads(data)
        return document

    def _shipped(self, written: str) -> ShippedRelease:
        for shipped in shipped_releases(self.settings.shipped, image_digest=self.image_digest):
            if written in (shipped.name, shipped.release.release_id):
                return shipped
        raise NotFound(NOT_FOUND, release=written)

    @property
    def _kept(self) -> KeptEvaluations:
        return KeptEvaluations(self.settings.evaluations)
