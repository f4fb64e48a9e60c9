"""Pandas frames over the published report, and the daily partitions made of them."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path

import pandas as pd

from receipt_pipeline.accounting.query import fetch_rows, reading_report
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.durable_files import write_whole

# No field of a single receipt: retention does not have to reach a frozen day.
_DAY_ITEMS = """
SELECT j.tenant, j.release_id, coalesce(i.decision, 'none') AS decision,
       coalesce(i.total_currency, 'none') AS currency, i.job_id, i.total_minor, i.total
FROM items i JOIN jobs j USING (job_id) CROSS JOIN report_info r
WHERE (j.terminal_at AT TIME ZONE r.time_zone)::DATE = ?
"""
_LAST_CLOSED_DAY = "SELECT (as_of AT TIME ZONE time_zone)::DATE - 1 AS day FROM report_info"
DAY_KEY = ["tenant", "release_id", "decision", "currency"]


def query_frame(published: Path, sql: str, parameters: list[object] | None = None) -> pd.DataFrame:
    """Return the rows of a query as a frame with Arrow types: exact money, aware UTC times."""
    with reading_report(published) as connection:
        table = connection.sql(sql, params=parameters or []).to_arrow_table()
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def last_closed_day(published: Path) -> dt.date:
    """Return the newest day that is over in the report; days are those of the report's time zone."""
    with reading_report(published) as connection:
        (row,) = fetch_rows(connection, _LAST_CLOSED_DAY)
    day: dt.date = row["day"]
    return day


def day_frame(published: Path, day: dt.date) -> pd.DataFrame:
    """Count the receipts whose jobs ended on one closed day, and add up their amounts.

    Returns:
        One row per tenant, release, decision and currency, sorted by these, with `jobs`, `receipts`,
        `total_minor` (minor units) and `total` (major units, exact). Decision and currency are `none`
        where a receipt has none.
    Raises:
        InputRefused: FIELD.INVALID.v1 while the day is not over in the report.
    """
    closed = last_closed_day(published)
    if day > closed:
        raise InputRefused(FIELD_INVALID, pointer="/day", given=str(day), last_closed_day=str(closed))
    items = query_frame(published, _DAY_ITEMS, [day])
    rows = items.groupby(DAY_KEY, sort=True).agg(
        jobs=("job_id", "nunique"),
        receipts=("job_id", "size"),
        total_minor=("total_minor", "sum"),
        total=("total", "sum"),
    )
    return rows.reset_index()


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as one Parquet file that is there in full or not at all."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_whole(path, buffer.getvalue())
