"""Simulated houses keep every invariant, and a seed tells the same story every time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from receipt_pipeline_tests.chaos.oracle.records import INVARIANTS
from receipt_pipeline_tests.chaos.simulator.actors import cancel, order, populate
from receipt_pipeline_tests.chaos.simulator.faults import MISHAPS, Dice, Mishap, Place
from receipt_pipeline_tests.chaos.simulator.harness import World
from receipt_pipeline_tests.chaos.simulator.search import shortest_story, simulate, story, this_process_bench
from receipt_pipeline_tests.chaos.simulator.seed import finish, installed_plan, simulate_seed
from receipt_pipeline_tests.property.mutations import MUTATIONS, installed
from receipt_pipeline_tests.suite_results import PROJECT

SEEDS = range(500, 508)
PLACES = [place for place in MISHAPS if place is not Place.ASIDE]


@pytest.mark.requirement("R112", "R113", "R120", "R154", "R156", "R157", "R158")
def test_seeds_keep_every_invariant() -> None:
    bench = this_process_bench()
    reports = [simulate_seed(bench, seed) for seed in SEEDS]
    assert {report.seed: report.violations for report in reports if report.violations} == {}
    assert min(report.jobs for report in reports) >= 5
    assert min(report.workers for report in reports) >= 3
    assert min(report.decisions for report in reports) >= 50
    befallen = {decision.mishap for report in reports for decision in report.made}
    assert {Mishap.THEFT, Mishap.CRASH, Mishap.ANSWER_LOST, Mishap.RESUBMIT, Mishap.TIME_JUMPS} <= befallen


def told_by_a_process_of_its_own(seed: int, *, hash_seed: str) -> str:
    """Return the story of a seed as `receipts simulate` prints it."""
    command = [Path(sys.executable).parent / "receipts", "simulate", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def test_a_seed_tells_the_same_story_byte_for_byte() -> None:
    first = told_by_a_process_of_its_own(3, hash_seed="1")
    assert len(first.splitlines()) > 20
    assert told_by_a_process_of_its_own(3, hash_seed="2") == first
    assert story(simulate_seed(this_process_bench(), 3)) == first


def test_a_broken_seed_tells_a_story_with_fewer_mishaps() -> None:
    bench = this_process_bench()
    broken = next(entry for entry in MUTATIONS if "expires" in entry.name)
    with installed(broken):
        whole = simulate_seed(bench, broken.seed)
        short = shortest_story(bench, whole)
    assert whole.violations
    assert {violation.invariant for violation in short.violations} & {
        violation.invariant for violation in whole.violations
    }
    assert len(short.made) <= len(whole.made)
    assert story(short).startswith(f"seed {broken.seed}: ")
    assert "journal " in story(short)


def test_the_document_counts_seeds_decisions_and_speed() -> None:
    document = json.loads(json.dumps(simulate(range(2)).as_document()))
    assert document["seeds"] == 2
    assert document["violations"] == []
    assert document["fault_decisions"]["total"] >= 2 * document["fault_decisions"]["min"] >= 100
    assert document["jobs"]["min"] >= 5
    assert set(document) >= {"workers", "seconds", "cpu_seconds", "seeds_per_second"}


def test_the_page_lists_every_invariant_in_its_own_words() -> None:
    page = (PROJECT / "docs" / "invariants.md").read_text()
    section = page.partition("\n## Invariants\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^- `(\w+)`: (.+)$", section, flags=re.MULTILINE)
    assert listed == [(entry.__name__, str(entry.__doc__).strip()) for entry in INVARIANTS]


class AnyHouse(RuleBasedStateMachine):
    """A house whose mishaps and order Hypothesis chooses, instead of a seed."""

    def __init__(self) -> None:
        super().__init__()
        quiet = Dice(0)
        quiet.calm, quiet.aim = True, ""
        self.world = World(this_process_bench(), seed=0, dice=quiet)
        self.installed = installed_plan(self.world)
        self.installed.__enter__()
        populate(self.world)

    @rule(number=st.integers(0, 30), strides=st.integers(1, 25))
    def an_actor_runs(self, number: int, strides: int) -> None:
        """Let one actor run for some strides."""
        actor = self.world.baton.actors[number % len(self.world.baton.actors)]
        self.world.wake(actor)
        self.world.clock.advance(2.0)
        self.world.run(actor, strides=strides)

    @rule(
        place=st.sampled_from(PLACES),
        number=st.integers(0, 9),
    )
    def the_next_thing_there_goes_wrong(self, place: Place, number: int) -> None:
        """Order a mishap for the next decision at a place."""
        mishaps = [mishap for mishap in MISHAPS[place] if mishap is not Mishap.THEFT]
        self.world.dice.ordered[place] = mishaps[number % len(mishaps)]

    @rule(seconds=st.sampled_from([5, 31, 65, 400]))
    def time_passes(self, seconds: int) -> None:
        """Let the clock move."""
        self.world.clock.advance(seconds)

    @rule(number=st.integers(0, 5))
    def a_caller_cancels(self, number: int) -> None:
        """Let a caller ask for a cancellation."""
        told = sorted(job_id for ids in self.world.answers.values() for job_id in ids)
        if told:
            order(self.world, lambda: cancel(self.world, told[number % len(told)]))

    def teardown(self) -> None:
        """Let the house come to rest and hold it against every invariant."""
        self.world.dice.ordered.clear()
        try:
            report = finish(self.world)
        finally:
            self.installed.__exit__(None, None, None)
        assert report.violations == (), story(report)


TestAnyHouse = AnyHouse.TestCase
TestAnyHouse.settings = settings(max_examples=6, stateful_step_count=30, deadline=None)
