"""Files and functions stay small, say what they are for, and have names that mean something."""

from __future__ import annotations

import ast
import re

from receipt_pipeline_tests.tidy.tracked import named, parsed, python_files, text_files, text_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
EVERYWHERE = ("receipt_pipeline", "receipt_pipeline_tests", "benchmarks")
VAGUE_NAMES = frozenset(
    {"util", "utils", "helper", "helpers", "common", "manager", "managers", "base", "misc"}
)
# Put together from halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:TO{}|FIX{}|XX{}|HA{})\b".format("DO", "ME", "X", "CK"))
UNFINISHED_CODE = re.compile(r"NotImplemented{}|\bx{}\b|pytest\.mark\.{}\b".format("Error", "fail", "skip"))


def line_count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function, its signature included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {named(path): len(text_of(path).splitlines()) for path in python_files(*EVERYWHERE)}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = {
        f"{named(path)}:{node.name}": line_count(node)
        for path in python_files(*EVERYWHERE)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and line_count(node) > FUNCTION_LINES_MAX
    }
    assert too_long == {}


def test_no_module_has_a_name_that_fits_everything() -> None:
    parts = {
        named(path): {part for name in path.with_suffix("").parts for part in name.split("_")}
        for path in python_files(*EVERYWHERE)
    }
    assert {name for name, words in parts.items() if words & VAGUE_NAMES} == set()


def test_every_module_opens_by_naming_the_step_that_it_serves() -> None:
    silent = [
        named(path)
        for path in python_files(*EVERYWHERE)
        if text_of(path).strip() and not text_of(path).startswith(('"""', 'r"""'))
    ]
    assert silent == []


def test_every_public_function_and_class_of_the_product_has_a_docstring() -> None:
    silent = [
        f"{named(path)}:{node.name}"
        for path in python_files("receipt_pipeline")
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert silent == []


def test_nothing_unfinished_is_left_in_the_tree() -> None:
    unfinished = [
        f"{named(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line) or (path.suffix == ".py" and UNFINISHED_CODE.search(line))
    ]
    assert unfinished == []
