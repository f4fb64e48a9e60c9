"""Every generated page is current, and the tables behind the pages are complete."""

from __future__ import annotations

import pytest

from docs.generate.case_study import case_study_blocks
from docs.generate.contracts import AT_BOUND
from docs.generate.pages import PAGES
from docs.generate.reasons import REMEDIES
from receipt_pipeline.core.attempts import FAILURE_RULES, FailureClass
from receipt_pipeline.core.completion import COMPLETION_CONTRACTS
from receipt_pipeline.core.effects import MEANING_OF_CAPABILITY, MEANING_WHEN_UNKNOWN, WHEN_UNKNOWN
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.reasons import Remedy
from receipt_pipeline_tests.suite_results import PROJECT


@pytest.mark.requirement("R095", "R099")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_generator_writes(name: str) -> None:
    assert (PROJECT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_the_case_study_balances_and_shows_no_id() -> None:
    assert "1 + 0 + 0 = 1, the accepted scope" in case_study_blocks()["receipt"]
    assert "job_" not in (PROJECT / "docs" / "case_study.md").read_text(encoding="utf-8")


def test_every_capability_failure_bound_and_remedy_is_explained() -> None:
    assert set(MEANING_OF_CAPABILITY) == set(WHEN_UNKNOWN)
    assert set(MEANING_WHEN_UNKNOWN) == set(WHEN_UNKNOWN.values())
    assert set(FAILURE_RULES) == set(FailureClass)
    assert set(AT_BOUND) == {rule.at_bound for rule in FAILURE_RULES.values()}
    assert set(REMEDIES) == set(Remedy)


@pytest.mark.requirement("R099")
def test_every_contract_names_evidence_for_every_terminal_class_and_balances_every_item_class() -> None:
    for contract in COMPLETION_CONTRACTS.values():
        assert set(contract.evidence) == set(TerminalClass)
        assert set(contract.balanced) == set(ItemClass)
        assert contract.required


def test_every_action_has_its_text_and_its_command() -> None:
    assert set(ACTION_TEXTS) == set(NextAction)
    assert [name for name, text in ACTION_TEXTS.items() if not text.command.startswith("receipts ")] == []
