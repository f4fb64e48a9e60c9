"""The job report over generated Parquet, and its peer: source 000's sets of ids in Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from receipt_pipeline.accounting.refresh import TABLES, ReportTable, report_as_ledger, sql_text
from receipt_pipeline.accounting.release_report import async_release_report
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.invariants.account import counted_account_sets

MEMORY_LIMIT = "1GB"
NOW = dt.datetime(2026, 12, 31, tzinfo=dt.UTC)
ROW_GROUP_ROWS = 100_000
REPORT_QUERY = (
    "SELECT state, terminal_class, count(*) AS jobs, sum(classified) AS classified,"
    " sum(attempts) AS attempts,"
    " count(*) FILTER (retried) AS retried, sum(deliveries) AS deliveries,"
    " sum(duplicate_events) AS duplicates,"
    " count(*) FILTER (output_check = 'missing') AS missing, sum(open_investigations) AS questions,"
    " quantile_disc(total_s, 0.5) AS p50_s, max(total_s) AS max_s FROM job_report GROUP BY ALL ORDER BY ALL"
)
WAITING_QUERY = "SELECT job_id FROM jobs WHERE state IN ('accepted', 'running') ORDER BY job_id"
# Of twenty jobs one each is rejected, expired, canceled and open; the others are read and settled.
_STATE = (
    "CASE i % 20 WHEN 0 THEN 'failed' WHEN 1 THEN 'expired' WHEN 2 THEN 'canceled' WHEN 3 THEN 'accepted'"
    " ELSE 'succeeded' END"
)
_ID = "'job_' || lpad(i::VARCHAR, 26, '0')"
_AT = "TIMESTAMPTZ '2026-11-28 08:00:00+00' + to_milliseconds(i)"
_SETTLED = f"{_STATE} = 'succeeded'"
_DIGEST = "'sha256:' || md5(i::VARCHAR) || md5((i + 1)::VARCHAR)"
# Per table the columns that are filled, and of which jobs it has a row.
GENERATED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "jobs": (
        {
            "job_id": _ID,
            "tenant": "'acme'",
            "caller": "'kim'",
            "idempotency_key": "'key-' || i",
            "fingerprint": _DIGEST,
            "state": _STATE,
            "terminal_class": f"CASE {_STATE} WHEN 'succeeded' THEN 'complete' WHEN 'failed' THEN 'rejected'"
            f" WHEN 'accepted' THEN NULL ELSE {_STATE} END",
            "phase": "'closed'",
            "notification": "'best_effort'",
            "items_requested": "1",
            "result_key": f"CASE WHEN {_SETTLED} THEN 'results/' || {_ID} || '/1-' || md5(i::VARCHAR) END",
            "result_digest": f"CASE WHEN {_SETTLED} THEN {_DIGEST} END",
            "submitted_at": _AT,
            "queue_deadline": f"{_AT} + INTERVAL 1 YEAR",
            "claimed_at": f"CASE WHEN {_SETTLED} THEN {_AT} + to_seconds(i % 900) END",
            "terminal_at": f"CASE WHEN {_STATE} <> 'accepted' THEN {_AT} + to_seconds(i % 1800) END",
            "latest_seq": "i * 10",
        },
        "true",
    ),
    "items": (
        {
            "job_id": _ID,
            "ordinal": "0",
            "sha256": _DIGEST,
            "size_bytes": "100000 + i % 1000",
            "decision_id": _DIGEST,
            "item_class": f"if({_SETTLED}, 'classified', if({_STATE} = 'failed', 'rejected', NULL))",
            "decision": f"CASE WHEN {_SETTLED} THEN if(i % 7 = 0, 'review', 'clear') END",
        },
        "true",
    ),
    "attempts": (
        {
            "job_id": _ID,
            "lease_epoch": "1 + tries",
            "outcome": "if(tries = 0 AND i % 50 = 5, 'failed', 'committed')",
            "invocations": "1",
            "run_id": "'run-' || (i // 100)",
        },
        f"{_SETTLED} AND (tries = 0 OR i % 50 = 5)",
    ),
    "effects": (
        {"effect_id": f"{_ID} || ':notification'", "job_id": _ID, "kind": "'notification'", "state": "'committed'"},
        f"{_STATE} <> 'accepted'",
    ),
    "deliveries": (
        {"delivery_id": "'del-' || i", "job_id": _ID, "outcome": "'delivered'", "late": "FALSE"},
        f"{_STATE} <> 'accepted'",
    ),
    "consumed": ({"consumed_id": "i", "job_id": _ID, "outcome": "if(i % 100 = 7, 'duplicate', 'acted')"}, _SETTLED),
    "review_tasks": (
        {"decision_id": _DIGEST, "job_id": _ID, "state": "if(i % 7 = 0, 'open', 'auto_cleared')"},
        _SETTLED,
    ),
    "output_checks": (
        {
            "object_key": f"'results/' || {_ID} || '/1-' || md5(i::VARCHAR)",
            "job_id": _ID,
            "outcome": "if(i % 10007 = 0, 'missing', 'ok')",
        },
        _SETTLED,
    ),
    "events": (
        {
            "seq": "i",
            "job_id": _ID,
            "kind": "'terminal'",
            "recorded_at": _AT,
            "data": f"json_object('state', {_STATE})",
        },
        f"{_STATE} <> 'accepted'",
    ),
    "investigations": (
        {"investigation_id": "'inv-' || i", "job_id": _ID, "kind": "'missing_terminal'", "state": "'open'"},
        "i % 10007 = 0",
    ),
}


def generate(home: Path, jobs: int) -> int:
    """Write the tables of so many jobs as Parquet, in the shape of an export; returns their size."""
    folder = home / "parquet"
    folder.mkdir()
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"SET temp_directory = '{home}'")
        for table in TABLES:
            values, condition = GENERATED.get(table.name, ({}, "false"))
            tries = 2 if table.name == "attempts" else 1
            source = f"range({jobs}) AS j(i), range({tries}) AS t(tries)"
            query = f"SELECT {_columns(table, values)} FROM {source} WHERE {condition}"
            target = folder / f"{table.name}.parquet"
            form = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
            connection.execute(f"COPY ({query}) TO '{target}' ({form})")
    return sum(path.stat().st_size for path in folder.iterdir())


def _columns(table: ReportTable, values: Mapping[str, str]) -> str:
    types = table.types | {name: "VARCHAR" for name, type_ in table.types.items() if type_ == "JSON"}
    return ", ".join(f'({values.get(name, "NULL")})::{type_} AS "{name}"' for name, type_ in types.items())


@contextmanager
def over_parquet(home: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database whose tables are the generated Parquet, within a bound of memory."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"SET temp_directory = '{home / 'spilled'}'")
        for table in TABLES:
            path = home / "parquet" / f"{table.name}.parquet"
            connection.execute(f"CREATE VIEW {table.name} AS SELECT * FROM read_parquet('{path}')")
        connection.execute(sql_text("account.sql"))
        connection.execute(sql_text("views.sql"))
        yield connection


def account_of_parquet(home: Path) -> int:
    """Balance the account over Parquet as a publication does; returns the jobs accepted.

    It says what the sets say, and why each unresolved job is one, which ids overlap, which nobody
    accepted, and how many items are unresolved. The jobs still open are listed, as the sets list them.
    """
    with over_parquet(home) as connection, report_as_ledger(connection, now=NOW) as tx:
        found = counted_account_sets(tx, limits=Limits())
        waiting = connection.sql(WAITING_QUERY).to_arrow_table()
    assert found.orphan_terminal == found.overlapping == found.unresolved == ()
    assert len(waiting) == found.ordinary.get(JobState.ACCEPTED, 0)
    return len(found.accepted) + sum(found.ordinary.values())


def report_of_parquet(home: Path) -> int:
    """Ask the view of all jobs, eight joins wide, for figures by class; returns the jobs counted."""
    with over_parquet(home) as connection:
        return sum(row[2] for row in connection.execute(REPORT_QUERY).fetchall())


def sets_of_parquet(home: Path) -> int:
    """Account for the same jobs as source 000 does: ids in Python sets; returns the jobs accepted."""
    accepted: set[str] = set()
    ended: dict[str, set[str]] = {state: set() for state in ("succeeded", "failed", "expired", "canceled")}
    for batch in _batches(home, "jobs", "job_id"):
        accepted.update(batch.column(0).to_pylist())
    for batch in _batches(home, "events", "job_id", "data"):
        states = pc.struct_field(pc.extract_regex(batch.column(1), '"state":"(?P<state>[a-z]+)"'), "state")
        for job_id, state in zip(batch.column(0).to_pylist(), states.to_pylist(), strict=True):
            ended[state].add(job_id)
    account = async_release_report(
        accepted, ended["succeeded"], ended["failed"], ended["expired"], canceled=ended["canceled"]
    )
    assert account["state"] == "investigate"
    return len(accepted)


def _batches(home: Path, table: str, *columns: str) -> Any:
    return pq.ParquetFile(home / "parquet" / f"{table}.parquet").iter_batches(columns=list(columns))
