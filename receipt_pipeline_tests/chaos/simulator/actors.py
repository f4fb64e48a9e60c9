"""What the actors of a simulation do: submit, dispatch, work, deliver, consume, reconcile, cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from receipt_pipeline.core.errors import InputRefused, KeyConflict, NotAllowed
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.request import ItemRequest
from receipt_pipeline.effects.consume import consume_due, receive_event
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.intake.accept import Arrival, accept_job
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.accept import Lineage
from receipt_pipeline.ledger.jobs.cancel import cancel_job, link_replacement, supersede_job
from receipt_pipeline.ledger.jobs.waves import close_wave, extend_wave, renew_wave, wave_jobs
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.reconciliation.repair import reconcile_ledger, sweep_objects
from receipt_pipeline.reconciliation.retention import expire_results
from receipt_pipeline.worker.dispatch import dispatch_waves
from receipt_pipeline.worker.loop import work_group
from receipt_pipeline_tests.chaos.simulator.faults import Fault, Place
from receipt_pipeline_tests.chaos.simulator.harness import Harness
from receipt_pipeline_tests.chaos.simulator.ledger import RELEASE
from receipt_pipeline_tests.chaos.simulator.scheduler import Actor
from receipt_pipeline_tests.chaos.simulator.script import LIMITS, SimulatedScans, WantedJob

WORKERS_MIN = 3
WORKERS_MAX = 4
PASS_MAX = 20
UNCONSUMED = """
SELECT 1 FROM effects WHERE kind = 'review_tasks' AND state = 'intended'
UNION ALL SELECT 1 FROM deliveries
 WHERE outcome = 'delivered' AND delivery_id NOT IN (SELECT event_id FROM consumed)
LIMIT 1
"""
INTERVENTION_CHANCE = 0.15
DISPATCH_EVERY_S = 5.0
RECONCILE_EVERY_S = 80.0
SUBMIT_WITHIN_S = 20.0


def add_actors(harness: Harness) -> None:
    """Add callers, workers and every kind of pass, some of them twice, so that they race."""
    workers = harness.drawn.randint(WORKERS_MIN, WORKERS_MAX)
    tasks: list[tuple[str, int, Callable[[Harness, Actor], None]]] = [
        ("caller", 2, follow_order),
        ("worker", workers, work_wave),
        ("dispatcher", 1, dispatch),
        ("sender", 2, send),
        ("consumer", 2, consume),
        ("reconciler", 2, reconcile),
    ]
    for role, count, task in tasks:
        for number in range(1, count + 1):
            harness.scheduler.add(Actor(f"{role}-{number}", partial(task, harness)))
    for wanted in harness.wanted:
        order(harness, partial(submit, harness, wanted), within_s=SUBMIT_WITHIN_S)


def order(harness: Harness, what: Callable[[], None], *, within_s: float = 0.0) -> None:
    """Schedule a caller's request within a number of seconds."""
    harness.orders.append((harness.clock.seconds + harness.drawn.uniform(0, within_s), what))


# Callers.


def follow_order(harness: Harness, actor: Actor) -> None:
    """Run the next request of a caller."""
    due = [entry for entry in harness.orders if entry[0] <= harness.clock.seconds]
    if due:
        harness.orders.remove(due[0])
        due[0][1]()


def submit(harness: Harness, wanted: WantedJob, *, replaces: str | None = None) -> None:
    """Submit a job; without an answer the caller submits the very same again."""
    answered = False

    def supersede(tx: LedgerTransaction, job: JobRow, replayed: bool) -> None:
        if replaces is not None and not replayed:
            supersede_job(tx, job_id=replaces, superseded_by=job.job_id, limits=LIMITS)
            link_replacement(tx, job_id=replaces, by_job_id=job.job_id, actor="kim")

    try:
        acceptance = accept_job(
            harness.intake,
            wanted.request,
            Arrival(harness.principal(wanted.tenant), SimulatedScans(wanted.scans), "simulation"),
            family=Lineage(lineage=replaces) if replaces else Lineage(),
            in_transaction=supersede,
        )
        answered = True
        harness.answers.setdefault(wanted.key, set()).add(acceptance.job_id)
    except (InputRefused, KeyConflict, NotAllowed):
        answered = True
        raise
    finally:
        if not answered and not harness.faults.calm:
            order(harness, lambda: submit(harness, wanted, replaces=replaces), within_s=20)


def submit_other(harness: Harness, wanted: WantedJob) -> None:
    """Submit another request under a key that is taken; it must be refused and change nothing."""
    item = wanted.request.items[0]
    other = replace(item, item_id=f"{item.item_id}-other")
    submit(harness, replace(wanted, request=replace(wanted.request, items=(other,))))


def cancel(harness: Harness, job_id: str) -> None:
    """Cancel a job, as the command does."""
    with harness.ledger.transaction() as tx:
        before = cancel_job(tx, job_id=job_id, limits=LIMITS)
        if before is not None:
            harness.canceled.add(job_id)
    point("cancel.after")


def supersede(harness: Harness, wanted: WantedJob, job_id: str) -> None:
    """Replace a job by a new one over its first item, in one transaction."""
    item: ItemRequest = wanted.request.items[0]
    request = replace(
        wanted.request,
        idempotency_key=f"{wanted.request.idempotency_key}-again",
        items=(item,),
        reconciliation_cutoff=None,
    )
    submit(harness, replace(wanted, request=request), replaces=job_id)


def intervene(harness: Harness) -> None:
    """Let people and accidents act between steps."""
    if harness.drawn.random() > INTERVENTION_CHANCE:
        return
    fault = harness.faults.decide(Place.INTERVENTION)
    if fault is None:
        return
    if fault is Fault.TIME_JUMPS:
        harness.clock.advance(harness.drawn.choice((10, 40, 70, 200)))
        harness.note("time passes")
    elif fault is Fault.CORRUPTION:
        _corrupt_result(harness)
    else:
        _repeat_request(harness, fault)


def _repeat_request(harness: Harness, fault: Fault) -> None:
    known = [wanted for wanted in harness.wanted if wanted.key in harness.answers]
    if not known:
        return
    wanted = harness.drawn.choice(known)
    job_id = min(harness.answers[wanted.key])
    harness.note(f"a caller will {fault.value} {wanted.request.idempotency_key}")
    if fault is Fault.CANCEL:
        order(harness, lambda: cancel(harness, job_id))
    elif fault is Fault.SUPERSEDE:
        order(harness, lambda: supersede(harness, wanted, job_id))
    elif harness.drawn.random() < 0.5:
        order(harness, lambda: submit(harness, wanted))
    else:
        order(harness, lambda: submit_other(harness, wanted))


def _corrupt_result(harness: Harness) -> None:
    """Lose or alter a result that a success names."""
    query = "SELECT result_key FROM jobs WHERE state = 'succeeded' ORDER BY job_id"
    keys = [key for (key,) in harness.database.connection.execute(query) if key in harness.objects.stored]
    if keys:
        key = harness.drawn.choice(keys)
        harness.note(f"an accident at {key}")
        harness.objects.corrupt(key, lost=harness.drawn.random() < 0.5)


# Passes.


def dispatch(harness: Harness, actor: Actor) -> None:
    """Reserve waves and launch their runs, each run key once; launches get lost, and doubled."""
    waiting = "SELECT 1 FROM jobs WHERE terminal_at IS NULL AND wave_id IS NULL LIMIT 1"
    if not _due(harness, actor, DISPATCH_EVERY_S) or not _any(harness, waiting):
        return
    found = dispatch_waves(harness.ledger, worker_id="simulated", release_ids=[RELEASE.release_id], limits=LIMITS)
    for wave in found.to_launch:
        if wave.run_key in harness.launched:
            continue
        harness.launched.add(wave.run_key)
        fault = harness.faults.decide(Place.LAUNCH)
        harness.note(f"{actor.owner}: launches {wave.wave_id}{f' ({fault.value})' if fault else ''}")
        copies = {Fault.LOST: 0, Fault.DOUBLED: 2}.get(fault, 1) if fault else 1
        harness.launches += [wave.wave_id] * copies


def work_wave(harness: Harness, actor: Actor) -> None:
    """Begin a launched run and process its wave, as a Dagster run does."""
    if harness.launches:
        wave_id = _next_launch(harness)
        harness.launches.remove(wave_id)
        harness.note(f"{actor.owner}: begins {wave_id}")
        run_wave(harness, wave_id, owner=actor.owner, actor=actor)


def _next_launch(harness: Harness) -> str:
    """Return the wave of the preferred job, or any."""
    query = "SELECT wave_id FROM jobs WHERE job_id = ?"
    row = harness.database.connection.execute(query, (harness.preferred_job,)).fetchone()
    harness.preferred_job = ""
    if row is not None and row[0] in harness.launches:
        return str(row[0])
    return harness.drawn.choice(harness.launches)


def run_wave(harness: Harness, wave_id: str, *, owner: str, actor: Actor | None = None) -> None:
    """Process the jobs of a wave, extend it by what became ready meanwhile, and close it."""
    worker = harness.worker(owner, actor)
    with harness.ledger.transaction() as tx:
        if not renew_wave(tx, wave_id, run_id=owner):
            return
        job_ids = [row["job_id"] for row in wave_jobs(tx, wave_id)]
    while job_ids:
        for line in work_group(worker, wave_id=wave_id, job_ids=job_ids):
            harness.note(f"{owner}: {line.job_id} {line.outcome}, {line.state} {line.phase}")
        with harness.ledger.transaction() as tx:
            job_ids = extend_wave(tx, wave_id, items_max=2, worker_ttl_s=LIMITS.work.worker_ttl_s)
        if harness.drawn.random() < 0.5:
            break
    with harness.ledger.transaction() as tx:
        close_wave(tx, wave_id)


def send(harness: Harness, actor: Actor) -> None:
    """Deliver what is due."""
    deliver_all(harness)


def deliver_all(harness: Harness) -> None:
    """Deliver what is due, if anything is."""
    if _any(harness, "SELECT 1 FROM outbox WHERE state NOT IN ('sent', 'abandoned') LIMIT 1"):
        deliver(harness.effects, limit=PASS_MAX, time_bound_s=math.inf)


def consume(harness: Harness, actor: Actor) -> None:
    """Consume what is due, or an event as a channel brings it: late, doubled, or under another id."""
    if harness.channel.arrived and harness.drawn.random() < 0.3:
        message = harness.drawn.choice(harness.channel.arrived)
        event_id = f"{message.message_id}-{harness.drawn.randint(1, 3)}"
        receive_event(harness.effects, {**message.payload, "event_id": event_id}, source="event")
        return
    consume_all(harness)


def consume_all(harness: Harness) -> None:
    """Consume what is due, if anything is."""
    if _any(harness, UNCONSUMED):
        consume_due(harness.effects, limit=PASS_MAX, time_bound_s=math.inf)


def reconcile(harness: Harness, actor: Actor) -> None:
    """Repair the ledger, now and then sweep the objects and retire results."""
    if not _due(harness, actor, RECONCILE_EVERY_S):
        return
    reconcile_ledger(harness.reconciler)
    chance = harness.drawn.random()
    if chance < 0.15:
        sweep_objects(harness.reconciler)
    elif chance < 0.4:
        expire_results(harness.reconciler)


def _due(harness: Harness, actor: Actor, every_s: float) -> bool:
    """Return whether an actor's next pass is due, and if so record its time."""
    now = harness.clock.seconds
    if abs(now - actor.heartbeat_due_s) < every_s:
        return False
    actor.heartbeat_due_s = now
    return True


def _any(harness: Harness, query: str) -> bool:
    return harness.database.connection.execute(query).fetchone() is not None
