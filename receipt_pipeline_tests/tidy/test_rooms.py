"""Doors between rooms are the agreed ones, and every durable boundary carries its failure points."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from receipt_pipeline.core.failure_points import ALTERATIONS, BOUNDARIES
from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.tidy.tracked import named, python_files, text_of


def product_text_outside(*rooms: str) -> str:
    """Return the product's code without these rooms."""
    return "\n".join(
        text_of(path) for path in python_files("receipt_pipeline") if not set(rooms) & set(path.parts)
    )


def test_rooms_import_downward_only() -> None:
    answer = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_boundary_is_marked_before_and_after_in_the_code() -> None:
    code = product_text_outside("core", "drill")
    called = set(re.findall(r'\bpoint\(\s*f?"([a-z_]+\.(?:before|after))"', code))
    wanted = {f"{name}.{side}" for name in BOUNDARIES for side in ("before", "after")}
    assert wanted - called == set()


def test_every_alteration_can_happen_in_the_code() -> None:
    code = product_text_outside("core", "drill")
    called = set(re.findall(r'\baltered\(\s*"([a-z_]+\.[a-z_]+)"', code))
    assert ALTERATIONS - called == set()


def test_only_the_dagster_room_goes_without_postponed_annotations() -> None:
    # Dagster reads a context's type at run time.
    postponed = [
        path.name
        for path in python_files("receipt_pipeline/defs")
        if "from __future__ import annotations" in text_of(path) and "\nimport dagster" in text_of(path)
    ]
    assert postponed == []


def test_tests_that_start_process_trees_live_in_one_folder() -> None:
    # A parallel run hands that folder to one worker, so that only one tree runs at a time.
    marked = {path for path in python_files("receipt_pipeline_tests") if "pytest.mark.e2e" in text_of(path)}
    here = PROJECT / "receipt_pipeline_tests"
    outside = [path for path in marked if not path.is_relative_to(here / "e2e") and "tidy" not in path.parts]
    unmarked = [path for path in python_files("receipt_pipeline_tests/e2e") if path.name.startswith("test_")]
    assert outside == []
    assert [path for path in unmarked if path not in marked] == []


def test_services_never_name_a_dialect() -> None:
    # The import rules cannot name a part of an outside package, so the words are looked for here.
    services = ("intake", "worker", "effects", "reconciliation", "accounting")
    files = python_files(*(f"receipt_pipeline/{room}" for room in services))
    assert [named(path) for path in files if re.search(r"\bdialects?\b", text_of(path))] == []
