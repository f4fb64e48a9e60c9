"""Simulates one seed: an instance under faults, then a calm phase, then every invariant."""

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
from receipt_pipeline_tests.chaos.oracle.evidence import Violation, find_violations
from receipt_pipeline_tests.chaos.oracle.invariants import INVARIANTS
from receipt_pipeline_tests.chaos.simulator.actors import add_actors, consume_all, deliver_all, intervene, run_wave
from receipt_pipeline_tests.chaos.simulator.evidence import Evidence, collect
from receipt_pipeline_tests.chaos.simulator.faults import Decision, FaultSource
from receipt_pipeline_tests.chaos.simulator.harness import Harness
from receipt_pipeline_tests.chaos.simulator.ledger import RELEASE, Dump, MemoryDatabase
from receipt_pipeline_tests.chaos.simulator.script import LIMITS

DECISIONS_MIN = 110
DECISIONS_MAX = 240
STEPS_MAX = 1_500
PASSES_MAX = 16
# In most seeds faults begin only after acceptance.
CALM_SUBMISSION_SHARE = 0.75
PASS_S = 35.0
FINISHING_STEPS_MAX = 400


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The report of one seed.

    Attributes:
        decisions: how often something could have gone wrong; `made` are those at which it did.
        log: what happened, one line each; the journal of every job in question at its end.
    """

    seed: int
    jobs: int
    workers: int
    decisions: int
    made: tuple[Decision, ...]
    violations: tuple[Violation, ...]
    log: tuple[str, ...]


def simulate_seed(database: MemoryDatabase, seed: int, *, disabled: frozenset[int] = frozenset()) -> SeedReport:
    """Run one seed to its end and look at every invariant.

    Args:
        disabled: numbers of decisions at which nothing may go wrong.
    """
    harness = Harness(database, seed=seed, faults=FaultSource(seed, disabled))
    with installed_plan(harness):
        add_actors(harness)
        run_under_faults(harness)
        return finish(harness)


def finish(harness: Harness) -> SeedReport:
    """Bring an instance to rest and check every invariant."""
    bring_to_rest(harness)
    harness.scheduler.end()
    before, after = reconcile_twice(harness)
    return report(harness, collect(harness, before=before, after=after))


@contextmanager
def installed_plan(harness: Harness) -> Iterator[None]:
    """Connect the failure points to the harness and silence the services' logs."""
    logger = logging.getLogger("receipt_pipeline")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    install_plan(harness)
    try:
        yield
    finally:
        remove_plan()
        logger.setLevel(level)


def report(harness: Harness, evidence: Evidence) -> SeedReport:
    """Check every invariant and return the report of the seed."""
    violations = tuple(find_violations(evidence, INVARIANTS))
    log = list(harness.log)
    if violations:
        log += evidence.journal_of({violation.job_id for violation in violations})
    workers = sum(actor.name.startswith("worker") for actor in harness.scheduler.actors)
    return SeedReport(
        seed=harness.seed,
        jobs=len(evidence.jobs),
        workers=workers,
        decisions=harness.faults.decisions,
        made=tuple(harness.faults.made),
        violations=violations,
        log=tuple(log),
    )


def run_under_faults(harness: Harness) -> None:
    """Run actors in an order that the seed decides, until enough decisions were made."""
    if harness.drawn.random() < CALM_SUBMISSION_SHARE:
        harness.faults.calm = True
        follow_all_orders(harness)
        harness.faults.calm = False
    enough = harness.drawn.randint(DECISIONS_MIN, DECISIONS_MAX)
    for _ in range(STEPS_MAX):
        if harness.faults.decisions >= enough:
            break
        harness.step()
        intervene(harness)
        harness.clock.advance(harness.drawn.random() * 0.4)


def bring_to_rest(harness: Harness) -> None:
    """Stop faults: late workers wake up, passes close what can be closed, an operator decides."""
    harness.faults.calm = True
    harness.note("calm")
    late = harness.drawn.random() < 0.5
    if late:
        run_passes(harness, passes_max=2)
    finish_tasks(harness)
    run_passes(harness, passes_max=PASSES_MAX)
    if harness.drawn.random() < 0.7:
        resolve_held_jobs(harness)
        run_passes(harness, passes_max=PASSES_MAX)


def finish_tasks(harness: Harness) -> None:
    """Wake every sleeper and let every actor finish its task and its callers' requests."""
    for actor in harness.scheduler.actors:
        harness.wake(actor)
    for _ in range(FINISHING_STEPS_MAX):
        waiting = [actor for actor in harness.scheduler.actors if actor.busy]
        if not waiting:
            break
        harness.run(harness.drawn.choice(waiting), pauses=9)
    follow_all_orders(harness)
    harness.launches.clear()


def follow_all_orders(harness: Harness) -> None:
    """Run all remaining requests of callers."""
    orders, harness.orders = harness.orders, []
    for _, what in orders:
        with harness.acting_as("caller-0"):
            what()


def run_passes(harness: Harness, *, passes_max: int) -> None:
    """Repeat every pass, each time after leases and retries, until nothing is left to do."""
    for number in range(1, passes_max + 1):
        harness.clock.advance(PASS_S if number < passes_max // 2 else 10 * PASS_S)
        run_pass(harness, number)
        if not is_anything_due(harness):
            return


def run_pass(harness: Harness, number: int) -> None:
    """Run every pass once; the expensive one every third time."""
    if number % 3 == 1:
        with harness.acting_as("reconciler-0"):
            reconcile_ledger(harness.reconciler)
    waves: list[str] = []
    owner = f"worker-0.{number}"
    with harness.acting_as("dispatcher-0"):
        found = dispatch_waves(harness.ledger, worker_id="simulated", release_ids=[RELEASE.release_id], limits=LIMITS)
        waves = [wave.wave_id for wave in found.to_launch]
    for wave_id in waves:
        with harness.acting_as(owner):
            run_wave(harness, wave_id, owner=owner)
    with harness.acting_as("sender-0"):
        deliver_all(harness)
    with harness.acting_as("consumer-0"):
        consume_all(harness)


DUE = """
SELECT 1 FROM jobs WHERE terminal_at IS NULL AND phase NOT IN ('reconciling', 'quarantined')
UNION ALL SELECT 1 FROM outbox WHERE state NOT IN ('sent', 'abandoned')
UNION ALL SELECT 1 FROM deliveries
 WHERE outcome = 'delivered' AND delivery_id NOT IN (SELECT event_id FROM consumed)
UNION ALL SELECT 1 FROM waves WHERE state = 'open'
LIMIT 1
"""


def is_anything_due(harness: Harness) -> bool:
    """Return whether another pass could do something."""
    return harness.database.connection.execute(DUE).fetchone() is not None


def resolve_held_jobs(harness: Harness) -> None:
    """Let an operator release held jobs and decide about quarantined ones."""
    with harness.acting_as("operator"):
        reconcile_ledger(harness.reconciler, granted=True)
    with harness.ledger.reading() as tx:
        held = open_quarantines(tx)
    for row in held:
        digests = [entry["digest"] for entry in row["digests"]]
        choices: list[str | None] = [*digests, None]
        harness.drawn.shuffle(choices)
        for keep in choices:
            try:
                resolve_quarantine(
                    harness.reconciler, job_id=row["job_id"], actor="operator", keep=keep, withdraw=keep is None
                )
            except PipelineError as error:
                harness.note(f"operator: {error.reason.code} for {row['job_id']}")
                continue
            harness.note(f"operator: {row['job_id']} {row['subject']} keeps {keep or 'nothing'}")
            break


def reconcile_twice(harness: Harness) -> tuple[Dump, Dump]:
    """Reconcile, and once more; returns the ledger before and after the second time."""
    harness.clock.advance(LIMITS.retention.orphan_grace_s + LIMITS.delivery.effect_deadline_s)
    with harness.acting_as("reconciler-0"):
        reconcile(harness.reconciler)
    before = harness.database.dump()
    with harness.acting_as("reconciler-0"):
        reconcile(harness.reconciler)
    return before, harness.database.dump()
