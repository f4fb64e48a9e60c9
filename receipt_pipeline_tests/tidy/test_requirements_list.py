"""The list of requirements is whole, and tests name only what it holds."""

from __future__ import annotations

import ast

from receipt_pipeline_tests.requirements_report import REQUIREMENTS_TEXT, known_ids
from receipt_pipeline_tests.tidy.tracked import named, parsed, python_files

ALL_IDS = [f"R{number:03d}" for number in range(1, 161)]


def marked_ids() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path in python_files("receipt_pipeline_tests"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
                for argument in node.args:
                    places.setdefault(ast.literal_eval(argument), []).append(f"{named(path)}:{node.lineno}")
    return places


def test_the_list_numbers_160_requirements_in_order() -> None:
    assert known_ids(REQUIREMENTS_TEXT.read_text()) == ALL_IDS


def test_marks_name_known_requirements() -> None:
    assert {name: places for name, places in marked_ids().items() if name not in ALL_IDS} == {}


def test_every_mark_names_at_least_one_requirement() -> None:
    empty = [
        f"{named(path)}:{node.lineno}"
        for path in python_files("receipt_pipeline_tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement" and not node.args
    ]
    assert empty == []
