"""Reads all that a published report says, in order, so that two reports can be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.query import fetch_rows, reading_report
from receipt_pipeline.accounting.refresh import TABLES

FURTHER = ("job_report", "costs", "account_findings", "active_principals")


def everything_in(published: Path) -> dict[str, list[Any]]:
    names = (*(table.name for table in TABLES), *FURTHER)
    with reading_report(published) as connection:
        told = {name: fetch_rows(connection, f"SELECT * FROM {name} ORDER BY ALL") for name in names}
        told["report"] = fetch_rows(connection, "SELECT * EXCLUDE (export_id, refresh_no) FROM report_info")
    return told


def built_whole(accountant: Accountant, folder: Path) -> dict[str, list[Any]]:
    """Return what a report says that is read anew from the whole ledger, in a folder of its own."""
    other = replace(accountant, report_root=folder)
    publish_report(other, whole=True)
    return everything_in(other.published)


def refreshes(accountant: Accountant) -> int:
    with reading_report(accountant.published) as connection:
        [row] = fetch_rows(connection, "SELECT refresh_no FROM report_info")
    return int(row["refresh_no"])
