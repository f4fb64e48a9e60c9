"""The page of next actions is the table."""

from __future__ import annotations

from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline_tests.tidy.write_next_actions import NEXT_ACTIONS_TEXT, next_actions_text


def test_the_page_of_next_actions_is_current() -> None:
    # After a change of the table: python -m receipt_pipeline_tests.tidy.write_next_actions
    assert NEXT_ACTIONS_TEXT.read_text() == next_actions_text()


def test_every_action_has_its_words_and_its_command() -> None:
    assert set(ACTION_TEXTS) == set(NextAction)
    assert [name for name, text in ACTION_TEXTS.items() if not text.command.startswith("receipts ")] == []
