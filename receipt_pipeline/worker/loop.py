"""Process the jobs of a group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.errors import IdentityMismatch, LeaseLost, LedgerUnavailable, PipelineError
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN, WORKER_LOST, Reason
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.worker.attempt import Attempt, AttemptMeter, Stop
from receipt_pipeline.worker.claim import VerifiedClaim, claim_verified_job
from receipt_pipeline.worker.context import JobResult, Outcome
from receipt_pipeline.worker.context import Worker as Worker
from receipt_pipeline.worker.heartbeat import Heartbeat
from receipt_pipeline.worker.items import run_items
from receipt_pipeline.worker.publish import publish

logger = logging.getLogger(__name__)

OUTCOME_OF_STOP = {Stop.YIELDED: Outcome.YIELDED, Stop.HELD: Outcome.QUARANTINED, Stop.CLOSED: Outcome.CLOSED}


@dataclass(slots=True)
class JobGroup:
    """A group of jobs in work: its heartbeat, when it must end, its lines and what broke under it."""

    worker: Worker
    beats: Heartbeat
    must_yield: Callable[[], bool]
    lines: list[JobResult] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)


def work_group(worker: Worker, *, wave_id: str, job_ids: Sequence[str]) -> list[JobResult]:
    """Work off the jobs in order and return a line for each.

    What can be expected of a job is a recorded outcome, not an exception. Trouble of the ground below
    (ledger away, a defect) costs the one job its attempt; its siblings go on, and it is raised at the end,
    with every line in its notes. Once the slice is used up, the wave was closed or the worker is asked
    to stop, the job in work yields at its next boundary and the others are left as they are.

    Args:
        wave_id: the reservation to keep alive, "" for none.
        job_ids: reserved jobs; each is claimed right before its first item.
    """
    started = worker.monotonic()
    with Heartbeat(worker, wave_id=wave_id) as beats:

        def must_yield() -> bool:
            used_s = worker.monotonic() - started
            return used_s >= worker.limits.work.wave_slice_s or beats.wave_closed or worker.stop_asked()

        group = JobGroup(worker, beats, must_yield)
        for job_id in job_ids:
            _work_one(group, job_id)
    if group.faults:
        raise _with_notes(group)
    return group.lines


def _work_one(group: JobGroup, job_id: str) -> None:
    """Work one job and add its line; whatever is raised below stays with this job."""
    started = group.worker.monotonic()
    done = 0
    if group.must_yield():
        outcome = Outcome.LEFT
    else:
        try:
            outcome, done = _take_and_work(group, job_id)
        except Exception as error:
            logger.exception("action=work_job job_id=%s broke", job_id)
            group.faults.append(error)
            outcome = Outcome.BROKEN
    line = _line(group.worker, job_id, outcome, done, seconds=group.worker.monotonic() - started)
    logger.info("action=work_job job_id=%s outcome=%s state=%s", job_id, outcome.value, line.state)
    group.lines.append(line)


def _take_and_work(group: JobGroup, job_id: str) -> tuple[Outcome, int]:
    """Take the job and work its attempt; returns what became of it and how many items were finished."""
    group.beats.take_up()
    try:
        taken = claim_verified_job(group.worker, job_id)
        if isinstance(taken, Outcome):
            return taken, 0
        attempt = _attempt(group, taken)
        group.beats.watch(attempt.token)
        try:
            return _work_attempt(attempt), attempt.items_done
        except LeaseLost:
            return Outcome.STOOD_DOWN, attempt.items_done
    finally:
        group.beats.let_go()


def _attempt(group: JobGroup, taken: VerifiedClaim) -> Attempt:
    meter = AttemptMeter(group.worker.monotonic, taken.clock_skew_s)
    return Attempt(group.worker, taken.claimed, taken.chain, group.beats, meter, group.must_yield)


def _work_attempt(attempt: Attempt) -> Outcome:
    """Run the items and publish; a failure that is expected ends the attempt by its class."""
    try:
        stop = run_items(attempt)
        if stop is Stop.PUBLISH:
            stop = publish(attempt)
        return OUTCOME_OF_STOP[stop]
    except (LeaseLost, LedgerUnavailable):
        raise  # Without the lease or the ledger there is nothing to write; the lease runs out by itself.
    except PipelineError as failure:
        _fail(attempt, _failure_class(failure), failure.reason)
        return Outcome.FAILED
    except Exception:
        # A defect is charged like the loss of a worker, so that no scan can bounce forever.
        _fail(attempt, FailureClass.WORKER_LOST, WORKER_LOST)
        raise


def _failure_class(failure: PipelineError) -> FailureClass:
    if isinstance(failure, IdentityMismatch):
        return FailureClass.IDENTITY
    if failure.reason == UPLOAD_UNKNOWN:
        return FailureClass.AMBIGUOUS_UPLOAD
    return FailureClass.TRANSIENT


def _fail(attempt: Attempt, failure_class: FailureClass, reason: Reason) -> None:
    with attempt.writing("fail") as tx:
        attempt.record_facts(tx)
        fail_attempt(tx, attempt.token, failure_class=failure_class, reason=reason, limits=attempt.worker.limits)


def _line(worker: Worker, job_id: str, outcome: Outcome, done: int, *, seconds: float) -> JobResult:
    job: JobRow | None = None
    with suppress(LedgerUnavailable), worker.ledger.reading() as tx:
        job = read_job(tx, job_id)
    return JobResult(
        job_id=job_id,
        outcome=outcome.value,
        state=job.state if job else "",
        phase=job.phase if job else "",
        terminal_class=job.terminal_class if job else None,
        reason=job.reason_code if job else "",
        items_done=done,
        items_requested=job.items_requested if job else 0,
        seconds=round(seconds, 3),
    )


def _with_notes(group: JobGroup) -> Exception:
    """Return the first fault, with the others and every job's line as notes."""
    first, *others = group.faults
    for other in others:
        first.add_note(f"also: {other!r}")
    for line in group.lines:
        first.add_note(f"{line.job_id}: {line.outcome}, {line.state} {line.phase}")
    return first
