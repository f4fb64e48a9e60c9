"""Taking over from an older system: the import of its jobs, and their records here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.app.evaluations import EvaluationOrders
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.legacy_jobs import OPEN_WORD, OWN_ORIGIN, legacy_job_document
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import FIELD_INVALID, ROLLBACK_SERVED
from receipt_pipeline.intake.legacy_import import ImportAnswer, LegacySystem, import_legacy_jobs
from receipt_pipeline.ledger.legacy_jobs import IMPORTED_PREFIX, read_import_investigation, read_legacy_job
from receipt_pipeline.runtime.serving import is_served
from receipt_pipeline.settings import NAME


class RolloutOrders(EvaluationOrders):
    """What an operator asks while this product takes over from an older one."""

    def import_jobs(self, path: Path, *, origin: str, meanings: Sequence[str]) -> ImportAnswer:
        """Import a file of an older system's jobs; the same file again changes nothing (R150).

        Args:
            origin: a name for the older system; ids are unique within it.
            meanings: what its own words mean, as `WORD=CLASS`, or `WORD=open` for a job not ended.
        Raises:
            InputRefused: for the file as a whole, or FIELD.INVALID.v1 for origin and meanings.
        """
        require(self.principal, Role.OPERATOR)
        if not NAME.fullmatch(origin) or origin == OWN_ORIGIN:
            raise InputRefused(
                FIELD_INVALID, pointer="--origin", expected=f"{NAME.pattern}, not {OWN_ORIGIN}"
            )
        older = LegacySystem(origin, dict(_meaning(written) for written in meanings))
        return import_legacy_jobs(self.intake, path, older, principal=self.principal)

    def roll_back(self, revision: str) -> list[str]:
        """Take the ledger back to an earlier schema; returns the tables that went with it.

        Raises:
            InputRefused: FIELD.INVALID.v1 for what is no earlier revision.
            NotAllowed: ROLLBACK.SERVED.v1 while web server and daemon serve this home.
        """
        require(self.principal, Role.OPERATOR)
        if is_served(self.settings):
            raise NotAllowed(ROLLBACK_SERVED)
        return self.ledger.roll_back(revision)

    def status(self, job_id: str, *, audience: str = "customer") -> dict[str, Any]:
        """Return a job's status document; that of an older system's job is the same for everybody."""
        if not job_id.startswith(IMPORTED_PREFIX):
            return super().status(job_id, audience=audience)
        with self.ledger.reading() as tx:
            row = read_legacy_job(tx, job_id, tenant=self.settings.tenant)
            require(self.principal, Role.OPERATOR, Role.ANALYST, record=row)
            return legacy_job_document(row, read_import_investigation(tx, row))


def _meaning(written: str) -> tuple[str, TerminalClass | None]:
    word, separator, meant = written.rpartition("=")
    if not separator or not word.strip() or meant not in (OPEN_WORD, *TerminalClass):
        allowed = ", ".join((OPEN_WORD, *TerminalClass))
        raise InputRefused(FIELD_INVALID, pointer="--state", expected=f"WORD=CLASS, with one of: {allowed}")
    return word.strip().lower(), None if meant == OPEN_WORD else TerminalClass(meant)
