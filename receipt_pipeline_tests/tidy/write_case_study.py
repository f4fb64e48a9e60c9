"""Writes the timelines and the receipt of docs/case_study.md from the records that the told story leaves.

Run it as `python -m receipt_pipeline_tests.tidy.write_case_study`. The story is the window of the drill's
sixth job, on a clock that does not run by itself, so that every number can be read again from records.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

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
# What an event says, for a reader who does not know the journal.
SAYS: Mapping[str, str] = {
    "accepted": "the request is a job; its pins are frozen",
    "claimed": "a worker owns the job under this epoch",
    "item_finished": "the model's outcome is in the ledger",
    "result_intended": "key and digest of the object are in the ledger, before the upload",
    "attempt_closed": "this try is over",
    "closing": "the limits have passed: no model any more, only what is there",
    "phase_changed": "where the open job stands",
    "terminal": "the one terminal record",
    "message_created": "the notification, in the same transaction",
    "effect_changed": "what is known of an effect",
    "settled": "every required effect has happened",
    "delivery": "the notification left",
    "consumed": "the review system took the decisions in",
}


def story() -> dict[str, str]:
    """Play both windows and return the blocks of the page by name."""
    with tempfile.TemporaryDirectory() as folder:
        clock = FakeClock()
        ledger = open_ledger(f"sqlite:///{folder}/ledger.db", clock=clock)
        ledger.migrate()
        house = ReconcileBench.build(ledger, clock, Path(folder))
        blocks = _killed_before_the_record(house) | _woke_up_late(house)
        ledger.close()
    return blocks | {"visibility": _visibility_timeout()}


def _killed_before_the_record(house: ReconcileBench) -> dict[str, str]:
    """Let a worker be killed after its upload and before its commit, and the limits pass meanwhile."""
    job_id = house.bench.accept(key="job-6", limits=LIMITS)
    began = house.clock.now()
    house.clock.advance(2)
    with ActingPlan({"upload.after": lambda: house.clock.advance(3), "commit.before": _killed}):
        _until_killed(lambda: house.bench.work(job_id))
    with house.ledger.reading() as tx:
        between = render_consequence(read_status(tx, job_id))
    (stored,) = house.bench.stored_results(job_id)
    for wait_s in (house.limits.work.lease_ttl_s + 1, house.limits.work.overrun_grace_s + 1):
        house.clock.advance(wait_s)
        reconcile_ledger(house.services)
    house.clock.advance(house.limits.work.retry_cap_s)
    house.bench.work(job_id)
    house.settle_effects()
    job = house.bench.job(job_id)
    assert job["result_digest"].removeprefix("sha256:") in stored, (
        "the object of the first attempt is the result"
    )
    assert sum(row["invocations"] for row in house.bench.attempts(job_id)) == 1
    with house.ledger.reading() as tx:
        document = read_status(tx, job_id)
    names = {job_id: "job-6"} | _digests(document)
    timeline = _table(
        "t (s) | epoch | event | what it says",
        (
            (
                f"{(row['at'] - began).total_seconds():.0f}",
                row["lease_epoch"] or "",
                f"`{row['kind']}`",
                _said(row),
            )
            for row in house.bench.rows(events, job_id)
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
    raise AssertionError("the worker was to be killed")


def _woke_up_late(house: ReconcileBench) -> dict[str, str]:
    """Let a worker stand still past its lease, be taken over, and wake up with an outcome."""
    job_id = house.bench.accept(key="stalled")
    began = house.clock.now()

    def stall() -> None:
        house.clock.advance(house.limits.work.lease_ttl_s + 1)
        reconcile_ledger(house.services)
        house.clock.advance(house.limits.work.retry_cap_s)
        house.bench.chain.on_classify = lambda data: None
        house.bench.work(job_id, worker=house.bench.worker("worker-b"))
        house.clock.advance(9)

    house.bench.chain.on_classify = lambda data: stall()
    house.bench.work(job_id)
    told = [
        (row["at"], row["lease_epoch"] or "", f"`{row['kind']}`", _said(row))
        for row in house.bench.rows(events, job_id)
        if row["kind"] in ("claimed", "attempt_closed", "item_finished", "terminal")
    ]
    told += [
        (
            row["refused_at"],
            row["lease_epoch"],
            "write refused",
            f"epoch {row['current_epoch']} owns the job by now",
        )
        for row in house.bench.rows(refused_writes, job_id)
    ]
    lines = sorted(told, key=lambda line: line[0])
    rows = ((f"{(at - began).total_seconds():.0f}", *rest) for at, *rest in lines)
    return {"fenced": _table("t (s) | epoch | event | what it says", rows)}


def _visibility_timeout() -> str:
    """Play the rejected design: a queue hands a message out again when nobody acknowledged it in time."""
    served: dict[str, str] = {}
    lines: list[tuple[str, str, str, str]] = []

    def line(at: float, who: str, what: str) -> None:
        lines.append((f"{at:.0f}", who, what, served.get("job", "nothing")))

    line(0, "A", "takes the message; it is invisible for 30 s")
    line(5, "A", "stands still: a pause, a full disk, a slow volume")
    line(VISIBILITY_S, "queue", "shows the message again: it cannot tell slow from dead")
    line(31, "B", "takes it, invokes the model again, gets another output")
    served["job"] = "B's output"
    line(40, "B", "writes the result, acknowledges, sends the notification")
    served["job"] = "A's output"
    line(61, "A", "wakes up and writes its result over it, acknowledges, notifies again")
    return _table("t (s) | who | what | what is served", lines)


def _said(row: Mapping[str, Any]) -> str:
    data = row["data"]
    facts = {
        name: data[name]
        for name in ("outcome", "reason", "cause", "state", "phase", "kind")
        if data.get(name)
    }
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    return SAYS[row["kind"]] + (f" ({told})" if told else "")


def _digests(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(document["fingerprint"]).removeprefix("sha256:")[:12]: "<fingerprint>",
        str(document["result"]["digest"]).removeprefix("sha256:")[:12]: "<digest>",
    }


def _redacted(text: str, names: Mapping[str, str]) -> str:
    for secret, shown in names.items():
        text = text.replace(secret, shown)
    return text


def _table(heads: str, rows: Iterable[Iterable[object]]) -> str:
    lines = [f"| {heads} |", "|" + "---|" * len(heads.split(" | "))]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with every block put between its two marks."""
    for name, text in blocks.items():
        marks = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", flags=re.DOTALL)
        assert marks.search(page), name
        page = marks.sub(lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8"), story()), encoding="utf-8")
