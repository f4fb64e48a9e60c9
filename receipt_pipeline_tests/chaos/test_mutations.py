"""The simulator finds deliberate defects: each breaks an invariant within a bounded number of seeds."""

from __future__ import annotations

import re

import pytest

from receipt_pipeline_tests.chaos.mutations import MUTATIONS, Mutation, installed
from receipt_pipeline_tests.chaos.oracle.invariants import INVARIANTS
from receipt_pipeline_tests.chaos.simulate import process_database
from receipt_pipeline_tests.chaos.simulator.seed import simulate_seed
from receipt_pipeline_tests.suite_results import PROJECT

FURTHER_SEEDS = 24


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_deliberate_defect_breaks_an_invariant(mutation: Mutation) -> None:
    database = process_database()
    found: set[str] = set()
    with installed(mutation):
        # The recorded seed comes first; the seeds from 0 on, where a change of the product has moved it.
        for seed in (mutation.seed, *range(FURTHER_SEEDS)):
            found |= {violation.invariant for violation in simulate_seed(database, seed).violations}
            if found:
                break
    assert found


def test_the_page_lists_every_defect_with_the_seed_that_finds_it() -> None:
    page = (PROJECT / "docs" / "invariants.md").read_text()
    listed = re.findall(r"^\| ([a-z][^|]+) \| (\d+) \| `(\w+)`", page, flags=re.MULTILINE)
    assert {(name, int(seed)) for name, seed, _ in listed} == {
        (entry.name, entry.seed) for entry in MUTATIONS
    }
    assert {invariant for _, _, invariant in listed} <= {invariant.__name__ for invariant in INVARIANTS}
