"""The page of the public cases names every case and every test that plays it."""

from __future__ import annotations

import ast
import re

from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import parsed, python_files, text_of

PAGE = PROJECT / "docs" / "field_cases.md"
CASES = [f"{number:02d}" for number in range(1, 37)]
LATER = {"36"}


def rows() -> dict[str, str]:
    found = re.findall(r"^\| (\d\d) \|.*\| ([^|]+) \|$", text_of(PAGE), flags=re.MULTILINE)
    assert [number for number, _ in found] == CASES
    return dict(found)


def played() -> set[str]:
    return {
        node.name
        for path in python_files("receipt_pipeline_tests/field")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_case_")
    }


def test_every_case_is_listed_with_tests_of_its_number_or_as_later() -> None:
    for number, tests in rows().items():
        named = re.findall(r"`(test_\w+)`", tests)
        if number in LATER:
            assert tests.startswith("later"), number
        else:
            assert named, number
            assert all(name.startswith(f"test_case_{number}_") for name in named), number


def test_the_listed_tests_are_the_tests_there_are() -> None:
    listed = {name for tests in rows().values() for name in re.findall(r"`(test_case_\w+)`", tests)}
    assert listed == played()
