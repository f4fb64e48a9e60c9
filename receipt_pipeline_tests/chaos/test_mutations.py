"""The simulator finds deliberate defects: each breaks an invariant within a bounded number of seeds."""

from __future__ import annotations

import pytest

from receipt_pipeline_tests.chaos.mutations import MUTATIONS, Mutation, installed
from receipt_pipeline_tests.chaos.oracle.invariants import INVARIANTS
from receipt_pipeline_tests.chaos.simulate import process_database
from receipt_pipeline_tests.chaos.simulator.seed import simulate_seed

FURTHER_SEEDS = 24
# An edit that no longer fits the product raises errors, which is no proof that the oracle sees the defect.
BROKEN_EDIT = "services_raise_only_expected_errors"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_deliberate_defect_breaks_an_invariant(mutation: Mutation) -> None:
    database = process_database()
    found: set[str] = set()
    with installed(mutation):
        # The recorded seed comes first; the seeds from 0 on, where a change of the product has moved it.
        for seed in (mutation.seed, *range(FURTHER_SEEDS)):
            found |= {violation.invariant for violation in simulate_seed(database, seed).violations}
            if found - {BROKEN_EDIT}:
                break
    assert found - {BROKEN_EDIT}


def test_every_defect_names_an_invariant() -> None:
    assert {entry.breaks for entry in MUTATIONS} <= {invariant.__name__ for invariant in INVARIANTS}
