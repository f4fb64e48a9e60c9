"""Tables, column schemas, short digests and links for the metadata of assets, checks and steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import sqlalchemy as sa

ROWS_MAX = 20
DIGEST_DIGITS = 12
_NUMBERS: Mapping[type, str] = {bool: "bool", int: "int", float: "float"}


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """Return the first 20 rows as a table; numbers stay numbers, everything else becomes text."""
    shown = rows[:ROWS_MAX]
    return dg.MetadataValue.table(
        [dg.TableRecord({name: _cell(row.get(name)) for name in columns}) for row in shown],
        schema=dg.TableSchema([dg.TableColumn(name, _type_of(shown, name)) for name in columns]),
    )


def _cell(value: Any) -> str | int | float | bool | None:
    return value if value is None or type(value) in _NUMBERS else str(value)


def _type_of(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    found = {type(row[name]) for row in rows if row.get(name) is not None}
    return _NUMBERS.get(found.pop(), "string") if len(found) == 1 else "string"


def column_schema(source: sa.Table) -> dg.TableSchema:
    """Return the columns of a ledger table with their comments, for `dagster/column_schema`."""
    columns = [
        dg.TableColumn(
            column.name,
            type=column.type.__class__.__name__.lower(),
            description=column.comment,
            constraints=dg.TableColumnConstraints(nullable=bool(column.nullable), unique=bool(column.unique)),
        )
        for column in source.columns
    ]
    return dg.TableSchema(columns)


def short(digest: str) -> str:
    """Return the first 12 hex digits of a digest."""
    return digest.removeprefix("sha256:")[:DIGEST_DIGITS]


def job_links(job_ids: Iterable[str | None], runs: Mapping[str, str]) -> dg.MarkdownMetadataValue:
    """Return the jobs as a list: the command that shows each, and a link to its last run."""
    listed = list(dict.fromkeys(job_id for job_id in job_ids if job_id))
    lines = [
        f"- `receipts status {job_id}`"
        + (f" · [run {runs[job_id][:8]}](/runs/{runs[job_id]})" if job_id in runs else "")
        for job_id in listed[:ROWS_MAX]
    ]
    if len(listed) > ROWS_MAX:
        lines.append(f"- {len(listed) - ROWS_MAX} more: run the query")
    return dg.MetadataValue.md("\n".join(lines) or "none")


def query_list(queries: Mapping[str, str]) -> dg.MarkdownMetadataValue:
    """Return the query behind each figure, ready to copy; each runs on the published report."""
    parts = [f"**{name}**\n```sql\n{query}\n```" for name, query in queries.items()]
    return dg.MetadataValue.md("\n".join(['Run with `receipts report --published --sql "…"`.', *parts]))
