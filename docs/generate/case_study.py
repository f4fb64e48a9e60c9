"""The timelines and the receipt of the case study, from the records of its scenario.

The scenario is that of the drill's sixth job on a fake clock, so that the records are the same every time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from docs.generate.blocks import table, with_blocks
from receipt_pipeline.core.receipt_text import render_consequence, render_receipt
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.schema.jobs import events, refused_writes
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.worker_bench import ActingPlan
from receipt_pipeline_tests.suite_results import PROJECT

PAGE = PROJECT / "docs" / "case_study.md"
LIMITS = LimitsRequest(processing_timeout_s=20)
VISIBILITY_S = 30.0
# What an event means, for a reader who does not know the journal.
MEANINGS: Mapping[str, str] = {
    "accepted": "the request is now a job with fixed pins",
    "claimed": "a worker owns the job under this epoch",
    "item_finished": "the outcome of the model is in the ledger",
    "result_intended": "key and digest of the object are in the ledger, before the upload",
    "attempt_closed": "this attempt ended",
    "closing": "the limits have passed: only existing outcomes count now",
    "phase_changed": "the phase of the open job",
    "terminal": "the one terminal record",
    "message_created": "the notification, in the same transaction",
    "effect_changed": "the state of an effect",
    "settled": "every required effect is done",
    "delivery": "the notification was sent",
    "consumed": "the review system consumed the decisions",
}


def case_study_blocks() -> dict[str, str]:
    """Play both scenarios and return the blocks of the page by name."""
    with tempfile.TemporaryDirectory() as folder:
        clock = FakeClock()
        ledger = open_ledger(f"sqlite:///{folder}/ledger.db", clock=clock)
        ledger.migrate()
        bench = ReconcileBench.build(ledger, clock, Path(folder))
        blocks = _killed_before_the_record(bench) | _late_wakeup(bench)
        ledger.close()
    return blocks | {"visibility": _visibility_timeout()}


def _killed_before_the_record(bench: ReconcileBench) -> dict[str, str]:
    """Let a worker be killed after its upload and before its commit, and the limits pass meanwhile."""
    job_id = bench.bench.accept(key="job-6", limits=LIMITS)
    began = bench.clock.now()
    bench.clock.advance(2)
    with ActingPlan({"upload.after": lambda: bench.clock.advance(3), "commit.before": _killed}):
        _until_killed(lambda: bench.bench.work(job_id))
    with bench.ledger.reading() as tx:
        between = render_consequence(read_status(tx, job_id))
    (stored,) = bench.bench.stored_results(job_id)
    for wait_s in (bench.limits.work.lease_ttl_s + 1, bench.limits.work.overrun_grace_s + 1):
        bench.clock.advance(wait_s)
        reconcile_ledger(bench.services)
    bench.clock.advance(bench.limits.work.retry_cap_s)
    bench.bench.work(job_id)
    bench.finish_effects()
    job = bench.bench.job(job_id)
    assert job["result_digest"].removeprefix("sha256:") in stored, "the object of the first attempt is the result"
    assert sum(row["invocations"] for row in bench.bench.attempts(job_id)) == 1
    with bench.ledger.reading() as tx:
        document = read_status(tx, job_id)
    names = {job_id: "job-6"} | _digests(document)
    timeline = _lines(
        "t (s) | epoch | event | meaning",
        (
            (f"{(row['at'] - began).total_seconds():.0f}", row["lease_epoch"] or "", f"`{row['kind']}`", _meaning(row))
            for row in bench.bench.rows(events, job_id)
        ),
    )
    return {
        "between": _fenced(_redacted(between, names)),
        "timeline": timeline,
        "receipt": _fenced(_redacted(f"{render_consequence(document)}\n{render_receipt(document)}", names)),
    }


def _killed() -> None:
    raise SystemExit


def _until_killed(work: Callable[[], object]) -> None:
    try:
        work()
    except SystemExit:
        return
    raise AssertionError("the worker was not killed")


def _late_wakeup(bench: ReconcileBench) -> dict[str, str]:
    """Stall a worker beyond its lease, let another take over, and wake the first one with an outcome."""
    job_id = bench.bench.accept(key="stalled")
    began = bench.clock.now()

    def stall() -> None:
        bench.clock.advance(bench.limits.work.lease_ttl_s + 1)
        reconcile_ledger(bench.services)
        bench.clock.advance(bench.limits.work.retry_cap_s)
        bench.bench.chain.on_classify = lambda data: None
        bench.bench.work(job_id, worker=bench.bench.worker("worker-b"))
        bench.clock.advance(9)

    bench.bench.chain.on_classify = lambda data: stall()
    bench.bench.work(job_id)
    lines = [
        (row["at"], row["lease_epoch"] or "", f"`{row['kind']}`", _meaning(row))
        for row in bench.bench.rows(events, job_id)
        if row["kind"] in ("claimed", "attempt_closed", "item_finished", "terminal")
    ]
    lines += [
        (row["refused_at"], row["lease_epoch"], "write rejected", f"epoch {row['current_epoch']} owns the job now")
        for row in bench.bench.rows(refused_writes, job_id)
    ]
    lines.sort(key=lambda line: line[0])
    rows = ((f"{(at - began).total_seconds():.0f}", *rest) for at, *rest in lines)
    return {"fenced": _lines("t (s) | epoch | event | meaning", rows)}


def _visibility_timeout() -> str:
    """Play the rejected design: a queue that assigns a message again when it was not acknowledged in time."""
    served: dict[str, str] = {}
    lines: list[tuple[str, str, str, str]] = []

    def line(at: float, who: str, what: str) -> None:
        lines.append((f"{at:.0f}", who, what, served.get("job", "nothing")))

    line(0, "A", "takes the message; it is invisible for 30 s")
    line(5, "A", "stalls: a pause, a full disk, a slow volume")
    line(VISIBILITY_S, "queue", "shows the message again: it cannot distinguish slow from dead")
    line(31, "B", "takes it, invokes the model again, gets another output")
    served["job"] = "B's output"
    line(40, "B", "writes the result, acknowledges, sends the notification")
    served["job"] = "A's output"
    line(61, "A", "wakes up, overwrites the result, acknowledges, notifies again")
    return _lines("t (s) | actor | action | served result", lines)


def _meaning(row: Mapping[str, Any]) -> str:
    data = row["data"]
    facts = {name: data[name] for name in ("outcome", "reason", "cause", "state", "phase", "kind") if data.get(name)}
    text = ", ".join(f"{name} {value}" for name, value in facts.items())
    return MEANINGS[row["kind"]] + (f" ({text})" if text else "")


def _digests(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(document["fingerprint"]).removeprefix("sha256:")[:12]: "<fingerprint>",
        str(document["result"]["digest"]).removeprefix("sha256:")[:12]: "<digest>",
    }


def _redacted(text: str, names: Mapping[str, str]) -> str:
    for secret, shown in names.items():
        text = text.replace(secret, shown)
    return text


def _lines(heads: str, rows: Iterable[Iterable[object]]) -> str:
    return "\n".join(table(heads, ([str(cell) for cell in row] for row in rows)))


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def case_study_text() -> str:
    """Return the page with its blocks generated again."""
    return with_blocks(PAGE.read_text(encoding="utf-8"), case_study_blocks())
