"""Simulated instances keep every invariant, and a seed gives the same log every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from receipt_pipeline_tests.chaos.mutations import MUTATIONS, installed
from receipt_pipeline_tests.chaos.simulate import log_text, process_database, shrink, simulate
from receipt_pipeline_tests.chaos.simulator.actors import add_actors, cancel, order
from receipt_pipeline_tests.chaos.simulator.faults import FAULTS_AT, Fault, FaultSource, Place
from receipt_pipeline_tests.chaos.simulator.harness import Harness
from receipt_pipeline_tests.chaos.simulator.seed import finish, installed_plan, simulate_seed

SEEDS = range(500, 508)
PLACES = [place for place in FAULTS_AT if place is not Place.INTERVENTION]


@pytest.mark.requirement("R112", "R113", "R120", "R154", "R156", "R157", "R158")
def test_seeds_keep_every_invariant() -> None:
    database = process_database()
    reports = [simulate_seed(database, seed) for seed in SEEDS]
    assert {report.seed: report.violations for report in reports if report.violations} == {}
    assert min(report.jobs for report in reports) >= 5
    assert min(report.workers for report in reports) >= 3
    assert min(report.decisions for report in reports) >= 50
    happened = {decision.fault for report in reports for decision in report.made}
    assert {Fault.LEASE_THEFT, Fault.CRASH, Fault.ANSWER_LOST, Fault.RESUBMIT, Fault.TIME_JUMPS} <= happened


def printed_by_a_fresh_process(seed: int, *, hash_seed: str) -> str:
    """Return the log of a seed as the command prints it."""
    command = [sys.executable, "-m", "receipt_pipeline_tests.chaos.simulate", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def test_a_seed_gives_the_same_log_byte_for_byte() -> None:
    first = printed_by_a_fresh_process(3, hash_seed="1")
    assert len(first.splitlines()) > 20
    assert printed_by_a_fresh_process(3, hash_seed="2") == first
    assert log_text(simulate_seed(process_database(), 3)) == first


def test_the_log_of_a_broken_seed_is_shrunk_to_fewer_faults() -> None:
    database = process_database()
    broken = next(entry for entry in MUTATIONS if "expires" in entry.name)
    with installed(broken):
        whole = simulate_seed(database, broken.seed)
        short = shrink(database, whole)
    assert whole.violations
    assert {violation.invariant for violation in short.violations} & {
        violation.invariant for violation in whole.violations
    }
    assert len(short.made) <= len(whole.made)
    assert log_text(short).startswith(f"seed {broken.seed}: ")
    assert "journal " in log_text(short)


def test_the_document_counts_seeds_decisions_and_speed() -> None:
    document = json.loads(json.dumps(simulate(range(2)).as_document()))
    assert document["seeds"] == 2
    assert document["violations"] == []
    assert document["fault_decisions"]["total"] >= 2 * document["fault_decisions"]["min"] >= 100
    assert document["jobs"]["min"] >= 5
    assert set(document) >= {"workers", "seconds", "cpu_seconds", "seeds_per_second"}


class AnyInstance(RuleBasedStateMachine):
    """An instance whose faults and order Hypothesis chooses, instead of a seed."""

    def __init__(self) -> None:
        super().__init__()
        quiet = FaultSource(0)
        quiet.calm, quiet.aim = True, ""
        self.harness = Harness(process_database(), seed=0, faults=quiet)
        self.installed = installed_plan(self.harness)
        self.installed.__enter__()
        add_actors(self.harness)

    @rule(number=st.integers(0, 30), pauses=st.integers(1, 25))
    def an_actor_runs(self, number: int, pauses: int) -> None:
        """Let one actor run for some pauses."""
        actor = self.harness.scheduler.actors[number % len(self.harness.scheduler.actors)]
        self.harness.wake(actor)
        self.harness.clock.advance(2.0)
        self.harness.run(actor, pauses=pauses)

    @rule(place=st.sampled_from(PLACES), number=st.integers(0, 9))
    def the_next_decision_there_is_a_fault(self, place: Place, number: int) -> None:
        """Order a fault for the next decision at a place."""
        kinds = [fault for fault in FAULTS_AT[place] if fault is not Fault.LEASE_THEFT]
        self.harness.faults.ordered[place] = kinds[number % len(kinds)]

    @rule(seconds=st.sampled_from([5, 31, 65, 400]))
    def time_passes(self, seconds: int) -> None:
        """Let the clock move."""
        self.harness.clock.advance(seconds)

    @rule(number=st.integers(0, 5))
    def a_caller_cancels(self, number: int) -> None:
        """Let a caller ask for a cancellation."""
        job_ids = sorted(job_id for ids in self.harness.answers.values() for job_id in ids)
        if job_ids:
            order(self.harness, lambda: cancel(self.harness, job_ids[number % len(job_ids)]))

    def teardown(self) -> None:
        """Bring the instance to rest and check every invariant."""
        self.harness.faults.ordered.clear()
        try:
            report = finish(self.harness)
        finally:
            self.installed.__exit__(None, None, None)
        assert report.violations == (), log_text(report)


TestAnyInstance = AnyInstance.TestCase
TestAnyInstance.settings = settings(max_examples=6, stateful_step_count=30, deadline=None)
