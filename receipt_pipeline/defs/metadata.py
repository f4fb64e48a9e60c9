"""Tables and links for metadata."""

from collections.abc import Iterable, Mapping

import dagster as dg

JOBS_LINKED_MAX = 50


def jobs_linked(job_ids: Iterable[str | None], runs: Mapping[str, str]) -> dg.MarkdownMetadataValue:
    """Return the jobs as a list: the command that shows each in full, and a link to its last run."""
    named = list(dict.fromkeys(job_id for job_id in job_ids if job_id))
    lines = [
        f"- `receipts status {job_id}`"
        + (f" · [run {runs[job_id][:8]}](/runs/{runs[job_id]})" if job_id in runs else "")
        for job_id in named[:JOBS_LINKED_MAX]
    ]
    if len(named) > JOBS_LINKED_MAX:
        lines.append(f"- and {len(named) - JOBS_LINKED_MAX} more: run the query")
    return dg.MetadataValue.md("\n".join(lines) or "none")


def queries_shown(queries: Mapping[str, str]) -> dg.MarkdownMetadataValue:
    """Return the query behind each figure, as a person copies it; each runs on the published report."""
    parts = [f"**{name}**\n```sql\n{query}\n```" for name, query in queries.items()]
    return dg.MetadataValue.md("\n".join(['run with `receipts report --published --sql "…"`', *parts]))
