"""What the actors of a simulated house do: submit, dispatch, work, deliver, consume, reconcile, cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from receipt_pipeline.core.errors import InputRefused, KeyConflict, NotAllowed
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.request import ItemRequest
from receipt_pipeline.effects.consume import consume_due, receive_event
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.intake.accept import accept
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.accept import Lineage
from receipt_pipeline.ledger.jobs.cancel import cancel_job, link_replacement, supersede_job
from receipt_pipeline.ledger.jobs.waves import beat_wave, close_wave, extend_wave, wave_jobs
from receipt_pipeline.reconciliation.repair import reconcile_ledger, sweep_objects
from receipt_pipeline.reconciliation.retention import expire_results
from receipt_pipeline.worker.dispatch import dispatch_waves
from receipt_pipeline.worker.loop import work_group
from receipt_pipeline_tests.chaos.simulator.faults import Mishap, Place
from receipt_pipeline_tests.chaos.simulator.harness import World
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
MEDDLE = 0.15
DISPATCH_EVERY_S = 5.0
RECONCILE_EVERY_S = 80.0
SUBMIT_WITHIN_S = 20.0


def populate(world: World) -> None:
    """Bring callers, workers and every kind of pass into the house, some of them twice, so that they race."""
    workers = world.drawn.randint(WORKERS_MIN, WORKERS_MAX)
    tasks: list[tuple[str, int, Callable[[World, Actor], None]]] = [
        ("caller", 2, follow_order),
        ("worker", workers, work_wave),
        ("dispatcher", 1, dispatch),
        ("sender", 2, send),
        ("consumer", 2, consume),
        ("reconciler", 2, reconcile),
    ]
    for role, count, task in tasks:
        for number in range(1, count + 1):
            world.baton.add(Actor(f"{role}-{number}", partial(task, world)))
    for wanted in world.wanted:
        order(world, partial(submit, world, wanted), within_s=SUBMIT_WITHIN_S)


def order(world: World, what: Callable[[], None], *, within_s: float = 0.0) -> None:
    """Let some caller do something within so many seconds."""
    world.orders.append((world.clock.seconds + world.drawn.uniform(0, within_s), what))


# Callers.


def follow_order(world: World, actor: Actor) -> None:
    """Do the next thing that a caller is to do."""
    due = [entry for entry in world.orders if entry[0] <= world.clock.seconds]
    if due:
        world.orders.remove(due[0])
        due[0][1]()


def submit(world: World, wanted: WantedJob, *, replaces: str | None = None) -> None:
    """Submit a job; without an answer the caller submits the very same again."""
    answered = False

    def supersede(tx: LedgerTransaction, job: dict[str, Any], replayed: bool) -> None:
        if replaces is not None and not replayed:
            supersede_job(tx, job_id=replaces, superseded_by=job["job_id"], limits=LIMITS)
            link_replacement(tx, job_id=replaces, by_job_id=job["job_id"], by="kim")

    try:
        acceptance = accept(
            world.intake,
            wanted.request,
            principal=world.principal(wanted.tenant),
            folder=SimulatedScans(wanted.scans),
            door="simulation",
            family=Lineage(lineage=replaces) if replaces else Lineage(),
            in_transaction=supersede,
        )
        answered = True
        world.answers.setdefault(wanted.key, set()).add(acceptance.job_id)
    except (InputRefused, KeyConflict, NotAllowed):
        answered = True
        raise
    finally:
        if not answered and not world.dice.calm:
            order(world, lambda: submit(world, wanted, replaces=replaces), within_s=20)


def submit_other(world: World, wanted: WantedJob) -> None:
    """Submit another request under a key that is taken; it must be refused and change nothing."""
    item = wanted.request.items[0]
    other = replace(item, item_id=f"{item.item_id}-other")
    submit(world, replace(wanted, request=replace(wanted.request, items=(other,))))


def cancel(world: World, job_id: str) -> None:
    """Cancel a job, as the door does."""
    with world.ledger.transaction() as tx:
        before = cancel_job(tx, job_id=job_id, limits=LIMITS)
        if before is not None:
            world.canceled.add(job_id)
    point("cancel.after")


def supersede(world: World, wanted: WantedJob, job_id: str) -> None:
    """Replace a job by a new one over its first item, in one transaction."""
    item: ItemRequest = wanted.request.items[0]
    request = replace(
        wanted.request,
        idempotency_key=f"{wanted.request.idempotency_key}-again",
        items=(item,),
        reconciliation_cutoff=None,
    )
    submit(world, replace(wanted, request=request), replaces=job_id)


def meddle(world: World) -> None:
    """Let people and accidents come in between steps."""
    if world.drawn.random() > MEDDLE:
        return
    mishap = world.dice.decide(Place.ASIDE)
    if mishap is None:
        return
    if mishap is Mishap.TIME_JUMPS:
        world.clock.advance(world.drawn.choice((10, 40, 70, 200)))
        world.tell("time passes")
    elif mishap is Mishap.ROT:
        _rot(world)
    else:
        _ask_again(world, mishap)


def _ask_again(world: World, mishap: Mishap) -> None:
    known = [wanted for wanted in world.wanted if wanted.key in world.answers]
    if not known:
        return
    wanted = world.drawn.choice(known)
    job_id = min(world.answers[wanted.key])
    world.tell(f"a caller will {mishap.value} {wanted.request.idempotency_key}")
    if mishap is Mishap.CANCEL:
        order(world, lambda: cancel(world, job_id))
    elif mishap is Mishap.SUPERSEDE:
        order(world, lambda: supersede(world, wanted, job_id))
    elif world.drawn.random() < 0.5:
        order(world, lambda: submit(world, wanted))
    else:
        order(world, lambda: submit_other(world, wanted))


def _rot(world: World) -> None:
    """Lose or alter a result that a success names."""
    query = "SELECT result_key FROM jobs WHERE state = 'succeeded' ORDER BY job_id"
    keys = [key for (key,) in world.bench.connection.execute(query) if key in world.objects.stored]
    if keys:
        key = world.drawn.choice(keys)
        world.tell(f"an accident at {key}")
        world.objects.rot(key, lost=world.drawn.random() < 0.5)


# Passes.


def dispatch(world: World, actor: Actor) -> None:
    """Reserve waves and launch their runs, each run key once; launches get lost, and doubled."""
    waiting = "SELECT 1 FROM jobs WHERE terminal_at IS NULL AND wave_id IS NULL LIMIT 1"
    if not _due(world, actor, DISPATCH_EVERY_S) or not _any(world, waiting):
        return
    found = dispatch_waves(
        world.ledger, worker_id="simulated", release_ids=[RELEASE.release_id], limits=LIMITS
    )
    for wave in found.to_launch:
        if wave.run_key in world.launched:
            continue
        world.launched.add(wave.run_key)
        mishap = world.dice.decide(Place.LAUNCH)
        world.tell(f"{actor.owner}: launches {wave.wave_id}{f' ({mishap.value})' if mishap else ''}")
        copies = {Mishap.LOST: 0, Mishap.DOUBLED: 2}.get(mishap, 1) if mishap else 1
        world.launches += [wave.wave_id] * copies


def work_wave(world: World, actor: Actor) -> None:
    """Take a launched run and work its wave, as a Dagster run does."""
    if world.launches:
        wave_id = _next_launch(world)
        world.launches.remove(wave_id)
        world.tell(f"{actor.owner}: begins {wave_id}")
        run_wave(world, wave_id, owner=actor.owner, actor=actor)


def _next_launch(world: World) -> str:
    """Return the wave of the job that is coveted, or any."""
    query = "SELECT wave_id FROM jobs WHERE job_id = ?"
    row = world.bench.connection.execute(query, (world.coveted,)).fetchone()
    world.coveted = ""
    if row is not None and row[0] in world.launches:
        return str(row[0])
    return world.drawn.choice(world.launches)


def run_wave(world: World, wave_id: str, *, owner: str, actor: Actor | None = None) -> None:
    """Work the jobs of a wave, take up once what became ready meanwhile, and close it."""
    worker = world.worker(owner, actor)
    with world.ledger.transaction() as tx:
        if not beat_wave(tx, wave_id, run_id=owner):
            return
        job_ids = [row["job_id"] for row in wave_jobs(tx, wave_id)]
    while job_ids:
        for line in work_group(worker, wave_id=wave_id, job_ids=job_ids):
            world.tell(f"{owner}: {line.job_id} {line.outcome}, {line.state} {line.phase}")
        with world.ledger.transaction() as tx:
            job_ids = extend_wave(tx, wave_id, items_max=2, worker_ttl_s=LIMITS.work.worker_ttl_s)
        if world.drawn.random() < 0.5:
            break
    with world.ledger.transaction() as tx:
        close_wave(tx, wave_id)


def send(world: World, actor: Actor) -> None:
    """Deliver what is due."""
    deliver_all(world)


def deliver_all(world: World) -> None:
    """Deliver where anything is due at all."""
    if _any(world, "SELECT 1 FROM outbox WHERE state NOT IN ('sent', 'abandoned') LIMIT 1"):
        deliver(world.effects, at_most=PASS_MAX, time_bound_s=math.inf)


def consume(world: World, actor: Actor) -> None:
    """Take in what is due, or an event as a channel brings it: late, doubled, or carrying other words."""
    if world.channel.arrived and world.drawn.random() < 0.3:
        message = world.drawn.choice(world.channel.arrived)
        event_id = f"{message.message_id}-{world.drawn.randint(1, 3)}"
        receive_event(world.effects, {**message.payload, "event_id": event_id}, source="event")
        return
    consume_all(world)


def consume_all(world: World) -> None:
    """Take in what is due where anything is."""
    if _any(world, UNCONSUMED):
        consume_due(world.effects, at_most=PASS_MAX, time_bound_s=math.inf)


def reconcile(world: World, actor: Actor) -> None:
    """Repair the ledger, now and then sweep the objects and retire results."""
    if not _due(world, actor, RECONCILE_EVERY_S):
        return
    reconcile_ledger(world.reconciler)
    chance = world.drawn.random()
    if chance < 0.15:
        sweep_objects(world.reconciler)
    elif chance < 0.4:
        expire_results(world.reconciler)


def _due(world: World, actor: Actor, every_s: float) -> bool:
    """Tell whether an actor's next pass is due, and note it."""
    now = world.clock.seconds
    if abs(now - actor.beats_at) < every_s:
        return False
    actor.beats_at = now
    return True


def _any(world: World, query: str) -> bool:
    return world.bench.connection.execute(query).fetchone() is not None
