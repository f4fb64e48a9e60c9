"""The pages of effects, failures and completion say what the tables say, and the tables are whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receipt_pipeline.core.attempts import FAILURE_RULES, FailureClass
from receipt_pipeline.core.completion import COMPLETION_CONTRACTS
from receipt_pipeline.core.effects import MEANING_OF_CAPABILITY, MEANING_WHEN_UNKNOWN, WHEN_UNKNOWN
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.write_contracts import AT_BOUND, PAGES


@pytest.mark.requirement("R095", "R099")
@pytest.mark.parametrize(("name", "text"), PAGES.items())
def test_a_page_is_written_from_its_table(name: str, text: Callable[[], str]) -> None:
    # After a change of a table: python -m receipt_pipeline_tests.tidy.write_contracts
    assert (PROJECT / "docs" / name).read_text() == text()


def test_every_capability_failure_and_bound_is_explained() -> None:
    assert set(MEANING_OF_CAPABILITY) == set(WHEN_UNKNOWN)
    assert set(MEANING_WHEN_UNKNOWN) == set(WHEN_UNKNOWN.values())
    assert set(FAILURE_RULES) == set(FailureClass)
    assert set(AT_BOUND) == {rule.at_bound for rule in FAILURE_RULES.values()}


@pytest.mark.requirement("R099")
def test_every_contract_names_evidence_for_every_ending_and_balances_every_class() -> None:
    for contract in COMPLETION_CONTRACTS.values():
        assert set(contract.evidence) == set(TerminalClass)
        assert set(contract.balanced) == set(ItemClass)
        assert contract.required
