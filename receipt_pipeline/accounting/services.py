"""What accounting is handed to work with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger


@dataclass(frozen=True, slots=True)
class Accountant:
    """The ledger, its limits and owners, and the folder in which the report is built and published."""

    ledger: Ledger
    report_root: Path
    limits: Limits

    @property
    def published(self) -> Path:
        """Return the one file that analysts open."""
        return self.report_root / "report.duckdb"

    @property
    def export(self) -> Path:
        """Return the folder of the exported Parquet files."""
        return self.report_root / "export"

    @property
    def doubted(self) -> Path:
        """Return the mark of a report that was seen to differ: the next one is read anew from the ledger."""
        return self.report_root / "doubted"
