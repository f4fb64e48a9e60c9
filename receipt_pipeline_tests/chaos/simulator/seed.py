"""Simulates one seed: a house under mishaps, then calm, then every invariant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.ledger.jobs.quarantine import open_quarantines
from receipt_pipeline.reconciliation.quarantine import resolve_quarantine
from receipt_pipeline.reconciliation.repair import reconcile, reconcile_ledger
from receipt_pipeline.worker.dispatch import dispatch_waves
from receipt_pipeline_tests.chaos.oracle.records import Violation, find_violations
from receipt_pipeline_tests.chaos.simulator.actors import consume_all, deliver_all, meddle, populate, run_wave
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence, collect
from receipt_pipeline_tests.chaos.simulator.faults import Decision, Dice
from receipt_pipeline_tests.chaos.simulator.harness import World
from receipt_pipeline_tests.chaos.simulator.ledger import RELEASE, Dump, LedgerBench
from receipt_pipeline_tests.chaos.simulator.script import LIMITS

DECISIONS_MIN = 110
DECISIONS_MAX = 240
STEPS_MAX = 1_500
ROUNDS_MAX = 16
# In most seeds all the mishaps are left for what follows acceptance.
SUBMITTED_CALMLY = 0.75
ROUND_S = 35.0
FINISHING_STEPS_MAX = 400


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What one seed came to.

    Attributes:
        decisions: how often something could have gone wrong; `made` are those at which it did.
        tale: what happened, one line each; the journal of every job in question at its end.
    """

    seed: int
    jobs: int
    workers: int
    decisions: int
    made: tuple[Decision, ...]
    violations: tuple[Violation, ...]
    tale: tuple[str, ...]


def simulate_seed(bench: LedgerBench, seed: int, *, disabled: frozenset[int] = frozenset()) -> SeedReport:
    """Run one seed to its end and look at every invariant.

    Args:
        disabled: numbers of decisions at which nothing may go wrong.
    """
    world = World(bench, seed=seed, dice=Dice(seed, disabled))
    with installed_plan(world):
        populate(world)
        live(world)
        return finish(world)


def finish(world: World) -> SeedReport:
    """Let a house come to rest and hold what it leaves against every invariant."""
    settle(world)
    world.baton.end()
    before, after = reconcile_twice(world)
    return report(world, collect(world, before=before, after=after))


@contextmanager
def installed_plan(world: World) -> Iterator[None]:
    """Let the failure points reach the world, and keep the services' own talk out of it."""
    logger = logging.getLogger("receipt_pipeline")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    install_plan(world)
    try:
        yield
    finally:
        remove_plan()
        logger.setLevel(level)


def report(world: World, evidence: Evidence) -> SeedReport:
    """Hold the evidence against every invariant and return what the seed came to."""
    violations = tuple(find_violations(evidence))
    tale = list(world.tale)
    if violations:
        tale += evidence.journal_of({violation.job_id for violation in violations})
    workers = sum(actor.name.startswith("worker") for actor in world.baton.actors)
    return SeedReport(
        seed=world.seed,
        jobs=len(evidence.jobs),
        workers=workers,
        decisions=world.dice.decisions,
        made=tuple(world.dice.made),
        violations=violations,
        tale=tuple(tale),
    )


def live(world: World) -> None:
    """Let everything happen in an order that the seed decides, until enough decisions were made."""
    if world.drawn.random() < SUBMITTED_CALMLY:
        world.dice.calm = True
        follow_all_orders(world)
        world.dice.calm = False
    enough = world.drawn.randint(DECISIONS_MIN, DECISIONS_MAX)
    for _ in range(STEPS_MAX):
        if world.dice.decisions >= enough:
            break
        world.step()
        meddle(world)
        world.clock.advance(world.drawn.random() * 0.4)


def settle(world: World) -> None:
    """Let nothing go wrong any more: late workers wake up, rounds close what can be closed, people decide."""
    world.dice.calm = True
    world.tell("calm")
    late = world.drawn.random() < 0.5
    if late:
        run_rounds(world, rounds_max=2)
    finish_tasks(world)
    run_rounds(world, rounds_max=ROUNDS_MAX)
    if world.drawn.random() < 0.7:
        decide(world)
        run_rounds(world, rounds_max=ROUNDS_MAX)


def finish_tasks(world: World) -> None:
    """Wake every sleeper and let every actor come to the end of its task, and of its callers' orders."""
    for actor in world.baton.actors:
        world.wake(actor)
    for _ in range(FINISHING_STEPS_MAX):
        waiting = [actor for actor in world.baton.actors if actor.busy]
        if not waiting:
            break
        world.run(world.drawn.choice(waiting), strides=9)
    follow_all_orders(world)
    world.launches.clear()


def follow_all_orders(world: World) -> None:
    """Do at once what callers still want, in the simulation's own hands."""
    orders, world.orders = world.orders, []
    for _, what in orders:
        with world.acting_as("caller-0"):
            what()


def run_rounds(world: World, *, rounds_max: int) -> None:
    """Run every pass by turns, each time past leases and retries, until nothing is left to do."""
    for number in range(1, rounds_max + 1):
        world.clock.advance(ROUND_S if number < rounds_max // 2 else 10 * ROUND_S)
        run_round(world, number)
        if not is_anything_due(world):
            return


def run_round(world: World, number: int) -> None:
    """Run every pass once, in the simulation's own hands; the costly one not every time."""
    if number % 3 == 1:
        with world.acting_as("reconciler-0"):
            reconcile_ledger(world.reconciler)
    waves: list[str] = []
    owner = f"worker-0.{number}"
    with world.acting_as("dispatcher-0"):
        found = dispatch_waves(
            world.ledger, worker_id="simulated", release_ids=[RELEASE.release_id], limits=LIMITS
        )
        waves = [wave.wave_id for wave in found.to_launch]
    for wave_id in waves:
        with world.acting_as(owner):
            run_wave(world, wave_id, owner=owner)
    with world.acting_as("sender-0"):
        deliver_all(world)
    with world.acting_as("consumer-0"):
        consume_all(world)


DUE = """
SELECT 1 FROM jobs WHERE terminal_at IS NULL AND phase NOT IN ('reconciling', 'quarantined')
UNION ALL SELECT 1 FROM outbox WHERE state NOT IN ('sent', 'abandoned')
UNION ALL SELECT 1 FROM deliveries
 WHERE outcome = 'delivered' AND delivery_id NOT IN (SELECT event_id FROM consumed)
UNION ALL SELECT 1 FROM waves WHERE state = 'open'
LIMIT 1
"""


def is_anything_due(world: World) -> bool:
    """Tell whether another round could do something."""
    return world.bench.connection.execute(DUE).fetchone() is not None


def decide(world: World) -> None:
    """Let a person grant held jobs their closing and decide about quarantined ones.

    What a person's reconciliation finds among the objects beside that, `reconcile_twice` finds too.
    """
    with world.acting_as("operator"):
        reconcile_ledger(world.reconciler, granted=True)
    with world.ledger.reading() as tx:
        held = open_quarantines(tx)
    for row in held:
        digests = [entry["digest"] for entry in row["digests"]]
        choices: list[str | None] = [*digests, None]
        world.drawn.shuffle(choices)
        for keep in choices:
            try:
                resolve_quarantine(
                    world.reconciler, job_id=row["job_id"], by="operator", keep=keep, withdraw=keep is None
                )
            except PipelineError as error:
                world.tell(f"operator: {error.reason.code} for {row['job_id']}")
                continue
            world.tell(f"operator: {row['job_id']} {row['subject']} keeps {keep or 'nothing'}")
            break


def reconcile_twice(world: World) -> tuple[Dump, Dump]:
    """Reconcile, and once more; returns the ledger before and after the second time."""
    world.clock.advance(LIMITS.retention.orphan_grace_s + LIMITS.delivery.effect_deadline_s)
    with world.acting_as("reconciler-0"):
        reconcile(world.reconciler)
    before = world.bench.dump()
    with world.acting_as("reconciler-0"):
        reconcile(world.reconciler)
    return before, world.bench.dump()
