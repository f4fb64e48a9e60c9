"""Read verified results and the list of rejections."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import NotAllowed, ObjectFault
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.money import Money
from receipt_pipeline.core.reasons import (
    REASONS,
    RESULT_MISMATCH,
    RESULT_MISSING,
    RESULT_NONE,
    RESULT_NOT_READY,
    RESULT_QUARANTINED,
    RESULT_RETIRED,
    RESULT_WITHDRAWN,
)
from receipt_pipeline.core.result_document import ResultDocument, ResultItem, parse_result
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.quarantine import open_quarantines
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_items
from receipt_pipeline.ledger.status import is_withdrawn, read_own_job


def read_result(context: EffectContext, job_id: str, *, tenant: str) -> dict[str, Any]:
    """Return a closed job's items with fields and decisions, from its verified object where there is one.

    A job that closed without an object shows what its ledger rows kept, and says that nothing was
    sent on. Labels are the file names of the request, for people; they are no part of the object.

    Raises:
        NotFound: unknown or foreign. NotAllowed: RESULT.* when it may not be served.
        ObjectFault: the object is missing or altered.
    """
    with context.ledger.reading() as tx:
        job = read_own_job(tx, job_id, tenant=tenant)
        _refuse_unserved(tx, job)
        rows = read_items(tx, job_id)
    head = {"job_id": job_id, "state": job.state, "terminal_class": job.terminal_class, "pins": job.pins.as_document()}
    if job.result_key is None:
        return head | {"object": None, "reason": RESULT_NONE.code, "items": [_from_row(row) for row in rows]}
    document = read_verified(context, job)
    labels = {row.ordinal: row.label for row in rows}
    served = [_from_line(item) | {"label": labels[item.ordinal]} for item in document.items]
    stored = {"digest": job.result_digest, "size_bytes": job.result_size_bytes, "verified": True}
    return head | {"object": stored, "reason": "", "items": served}


def read_verified(context: EffectContext, job: JobRow) -> ResultDocument:
    """Read a result object whose bytes hash to the ledger's digest. Raises ObjectFault otherwise."""
    if job.result_key is None:
        raise ObjectFault(RESULT_MISSING, job_id=job.job_id)
    data = context.objects.read(job.result_key)
    if digest_of_bytes(data) != job.result_digest:
        raise ObjectFault(RESULT_MISMATCH, job_id=job.job_id)
    return parse_result(data)


def _refuse_unserved(tx: LedgerTransaction, job: JobRow) -> None:
    job_id = job.job_id
    if open_quarantines(tx, job_id):
        raise NotAllowed(RESULT_QUARANTINED, job_id=job_id)
    if job.state not in TERMINAL_STATES:
        raise NotAllowed(RESULT_NOT_READY, job_id=job_id, state=job.state)
    if is_withdrawn(tx, job):
        raise NotAllowed(RESULT_WITHDRAWN, job_id=job_id)
    if job.result_purged_at is not None:
        raise NotAllowed(RESULT_RETIRED, job_id=job_id)


def _from_line(item: ResultItem) -> dict[str, Any]:
    document = item.as_document()
    outcome: dict[str, Any] = document.pop("outcome")
    return document | outcome | {"total_text": _total_text(outcome["fields"])}


def _from_row(row: ItemRow) -> dict[str, Any]:
    fields = row.fields or {}
    names = ("ordinal", "item_id", "label", "decision_id", "sha256", "decision", "risk_ppm")
    return {name: getattr(row, name) for name in names} | {
        "class": row.item_class,
        "fields": fields,
        "reasons": row.reasons or [],
        "reason_code": row.reason_code,
        "outcome_digest": row.outcome_digest,
        "total_text": _total_text(fields),
    }


def _total_text(fields: Mapping[str, Any]) -> str | None:
    total = fields.get("total")
    if not total:
        return None
    text = Money(total["minor"], total["currency"]).as_decimal_text()
    return f"{text} {total['currency']}" if total["currency"] else text


COLUMNS = ("item_id", "source_name", "reason_code", "meaning", "next_step")
# A spreadsheet would run a text that begins so as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_rejections(tx: LedgerTransaction, job_id: str, *, tenant: str) -> list[dict[str, str]]:
    """Return a line per rejected item, in order. It stays readable after the payload was purged.

    Raises:
        NotFound: unknown or foreign. NotAllowed: RESULT.NOT_READY.v1 while the job is open.
    """
    job = read_own_job(tx, job_id, tenant=tenant)
    if job.state not in TERMINAL_STATES:
        raise NotAllowed(RESULT_NOT_READY, job_id=job_id, state=job.state)
    rejected = [row for row in read_items(tx, job_id) if row.item_class == ItemClass.REJECTED]
    return [_line(row.item_id, row.label, row.reason_code) for row in rejected]


def _line(item_id: str, source_name: str, code: str) -> dict[str, str]:
    known = REASONS.get(code)
    meaning = known.meaning if known else "This version does not know the reason."
    next_step = known.next_step if known else "Upgrade to read it."
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
