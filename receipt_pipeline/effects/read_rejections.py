"""The rejection list of a closed job: which scans were refused, why, and what to do about each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.item_classes import ItemClass
from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import REASONS, RESULT_NOT_READY
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.status import read_items, read_own_job

COLUMNS = ("item_id", "source_name", "reason_code", "meaning", "next_step")
# A spreadsheet would run a text that begins so as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_rejections(tx: LedgerTransaction, job_id: str, *, tenant: str) -> list[dict[str, str]]:
    """Return a line per rejected item, in order. It stays readable after the payload was purged.

    Raises:
        NotFound: unknown or foreign. NotAllowed: RESULT.NOT_READY.v1 while the job is open.
    """
    job = read_own_job(tx, job_id, tenant=tenant)
    if job["state"] not in TERMINAL_STATES:
        raise NotAllowed(RESULT_NOT_READY, job_id=job_id, state=job["state"])
    rejected = [row for row in read_items(tx, job_id) if row["item_class"] == ItemClass.REJECTED]
    return [_line(row["item_id"], row["label"], row["reason_code"]) for row in rejected]


def _line(item_id: str, source_name: str, code: str) -> dict[str, str]:
    known = REASONS.get(code)
    meaning = known.meaning if known else "a reason this version does not know"
    next_step = known.next_step if known else "upgrade to read it"
    return dict(zip(COLUMNS, (item_id, source_name, code, meaning, next_step), strict=True))


def rejections_csv(lines: Iterable[Mapping[str, str]], columns: Sequence[str] = COLUMNS) -> str:
    """Return the list as CSV with a header; texts that a spreadsheet would run begin with an apostrophe."""
    target = io.StringIO()
    writer = csv.DictWriter(target, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _inert(text) for name, text in line.items()})
    return target.getvalue()


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
