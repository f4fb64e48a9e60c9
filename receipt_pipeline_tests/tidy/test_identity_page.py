"""The page on a job's identity answers its four questions, each by a test that exists."""

from __future__ import annotations

import re

import pytest

from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import python_files, text_of


@pytest.mark.requirement("R030")
def test_each_of_the_four_identity_answers_names_a_test_that_exists() -> None:
    page = (PROJECT / "docs" / "identity.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`test_" in line]
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    existing = {
        name
        for path in python_files("receipt_pipeline_tests")
        for name in re.findall(r"^def (test_\w+)\(", text_of(path), re.MULTILINE)
    }

    assert len(rows) == 4
    assert all(tests and set(tests) <= existing for tests in named), named
