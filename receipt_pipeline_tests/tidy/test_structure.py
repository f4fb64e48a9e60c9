"""Imports point downward, packages stay small, and every durable boundary has its failure points."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from receipt_pipeline.core.failure_points import ALTERATIONS, BOUNDARIES
from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import named, parsed, python_files, text_files, text_of

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 6
PACKAGE_FILES_MAX = 22
PRODUCT = "receipt_pipeline"
CODE = (PRODUCT, "receipt_pipeline_tests", "benchmarks", "training", "docs")
VAGUE_NAMES = frozenset({"util", "utils", "helper", "helpers", "common", "manager", "managers", "base", "misc"})
VERSIONED = re.compile(r"_v\d+$")
REQUIREMENT_ID = re.compile(r"\bR\d{3}\b|\(D\d{1,2}[,)]")
# Put together from halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:TO{}|FIX{}|XX{}|HA{})\b".format("DO", "ME", "X", "CK"))
UNFINISHED_CODE = re.compile(r"NotImplemented{}|\bx{}\b|pytest\.mark\.{}\b".format("Error", "fail", "skip"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(*folders: str) -> Iterator[tuple[str, Function]]:
    for path in python_files(*folders):
        for node in ast.walk(parsed(path)):
            if isinstance(node, Function):
                yield f"{named(path)}:{node.name}", node


def parameters(function: Function) -> int:
    arguments = function.args
    names = [entry.arg for entry in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def product_text_outside(*packages: str) -> str:
    return "\n".join(text_of(path) for path in python_files(PRODUCT) if not set(packages) & set(path.parts))


def test_packages_import_downward_only() -> None:
    answer = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_services_never_name_a_dialect() -> None:
    # The import rules cannot name a part of an external package, so the text is searched.
    services = ("intake", "worker", "effects", "reconciliation", "accounting")
    files = python_files(*(f"{PRODUCT}/{name}" for name in services))
    assert [named(path) for path in files if re.search(r"\bdialects?\b", text_of(path))] == []


def test_no_file_is_too_long() -> None:
    lengths = {named(path): len(text_of(path).splitlines()) for path in python_files(*CODE)}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        name: (function.end_lineno or function.lineno) - function.lineno + 1 for name, function in functions(*CODE)
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def test_no_function_of_the_product_has_too_many_parameters() -> None:
    counts = {name: parameters(function) for name, function in functions(PRODUCT)}
    assert {name: count for name, count in counts.items() if count > PARAMETERS_MAX} == {}


def test_no_package_of_the_product_has_too_many_files() -> None:
    counts = Counter(str(path.parent.relative_to(PROJECT)) for path in python_files(PRODUCT))
    assert {name: count for name, count in counts.items() if count > PACKAGE_FILES_MAX} == {}


def test_modules_have_specific_names_without_versions() -> None:
    vague = [
        named(path)
        for path in python_files(*CODE)
        if {part for name in Path(named(path)).with_suffix("").parts for part in name.split("_")} & VAGUE_NAMES
    ]
    versioned = [named(path) for path in python_files(PRODUCT) if VERSIONED.search(path.stem)]
    assert (vague, versioned) == ([], [])


def test_every_module_has_a_docstring_and_so_has_what_the_product_exports() -> None:
    silent = [
        named(path) for path in python_files(*CODE) if text_of(path).strip() and not ast.get_docstring(parsed(path))
    ]
    silent += [
        f"{named(path)}:{node.name}"
        for path in python_files(PRODUCT)
        for node in parsed(path).body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert silent == []


def test_requirement_ids_are_in_test_markers_only() -> None:
    found = {named(path): REQUIREMENT_ID.findall(text_of(path)) for path in python_files(PRODUCT)}
    assert {name: ids for name, ids in found.items() if ids} == {}


def test_nothing_is_unfinished() -> None:
    unfinished = [
        f"{named(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line) or (path.suffix == ".py" and UNFINISHED_CODE.search(line))
    ]
    assert unfinished == []


def test_every_boundary_is_marked_before_and_after_in_the_code() -> None:
    code = product_text_outside("core", "drill")
    called = set(re.findall(r'\bpoint\(\s*f?"([a-z_]+\.(?:before|after))"', code))
    wanted = {f"{name}.{side}" for name in BOUNDARIES for side in ("before", "after")}
    assert wanted - called == set()


def test_every_alteration_can_happen_in_the_code() -> None:
    code = product_text_outside("core", "drill")
    called = set(re.findall(r'\baltered\(\s*"([a-z_]+\.[a-z_]+)"', code))
    assert ALTERATIONS - called == set()


def test_definitions_have_no_postponed_annotations() -> None:
    # Dagster reads the type of a context at run time.
    postponed = [
        path.name
        for path in python_files(f"{PRODUCT}/defs")
        if "from __future__ import annotations" in text_of(path) and "\nimport dagster" in text_of(path)
    ]
    assert postponed == []


def test_tests_that_start_process_trees_are_in_one_folder() -> None:
    # A parallel run assigns that folder to one worker, so that only one tree runs at a time.
    marked = {path for path in python_files("receipt_pipeline_tests") if "pytest.mark.e2e" in text_of(path)}
    here = PROJECT / "receipt_pipeline_tests"
    outside = [path for path in marked if not path.is_relative_to(here / "e2e") and "tidy" not in path.parts]
    unmarked = [path for path in python_files("receipt_pipeline_tests/e2e") if path.name.startswith("test_")]
    assert outside == []
    assert [path for path in unmarked if path not in marked] == []
