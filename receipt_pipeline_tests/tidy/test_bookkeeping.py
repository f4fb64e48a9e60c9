"""The count of requirements is honest: only passing tests carry, and only a matching run is used again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline_tests.parallel_order import share_of
from receipt_pipeline_tests.requirements_report import carried_ids, main, reusable
from receipt_pipeline_tests.suite_results import PROJECT, SuiteRecorder, TreeState, tree_state

SMALL_SUITE = """
import pytest

@pytest.mark.requirement("R001", "R002")
def test_that_passes(): pass

@pytest.mark.requirement("R003")
def test_that_skips(): pytest.skip("no reason at all")

@pytest.mark.requirement("R004")
def test_that_breaks_down(failing): pass

@pytest.fixture
def failing():
    yield
    raise AssertionError("in tear-down")
"""


def run_small_suite(folder: Path, *arguments: str, strict: bool = False) -> dict[str, Any]:
    (folder / "conftest.py").write_text("from receipt_pipeline_tests.conftest import *  # noqa: F403\n")
    (folder / "test_small.py").write_text(SMALL_SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = requirement(*ids)\n field\n e2e\n postgres\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--results=results.json", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "RECEIPTS_TEST_STRICT": "1" if strict else "0"},
        capture_output=True,
        check=False,
    )
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "parallel"])
def test_skipped_and_failed_tests_carry_no_requirement(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    document = run_small_suite(tmp_path, *arguments)
    outcomes = {name.rpartition("::")[2]: test["outcome"] for name, test in document["tests"].items()}
    assert outcomes == {"test_that_passes": "passed", "test_that_skips": "skipped", "test_that_breaks_down": "failed"}
    assert carried_ids(document) == {"R001", "R002"}


def test_a_needless_skip_fails_a_strict_run_only(tmp_path: Path) -> None:
    only = ("-k", "passes or skips")
    assert run_small_suite(tmp_path, *only)["exit_status"] == 0
    assert run_small_suite(tmp_path, *only, strict=True)["exit_status"] == 1


def test_a_skip_for_an_allowed_reason_does_not_fail_a_strict_run(tmp_path: Path) -> None:
    state = TreeState(commit="c", clean=True, shared=False)
    recorder = SuiteRecorder(results=None, strict=True, allowed_skips=("no reason",), before=state, shared=tmp_path)
    report = pytest.TestReport(
        nodeid="t",
        location=("t", 1, "t"),
        keywords={},
        outcome="skipped",
        when="setup",
        longrepr=("t", 1, "Skipped: no reason at all"),
    )
    recorder.pytest_runtest_logreport(report)
    assert recorder.tests["t"].outcome == "skipped"
    assert recorder.needless_skips() == []


def test_only_a_passed_run_on_this_very_clean_tree_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TreeState(commit="abc", clean=True, shared=False)
    monkeypatch.setattr("receipt_pipeline_tests.requirements_report.tree_state", lambda shared: state)
    passed = {"commit": "abc", "clean": True, "shared": False, "exit_status": 0, "tests": {}}
    assert reusable(passed, shared=tmp_path)
    for change in ({"commit": "abd"}, {"clean": False}, {"shared": True}, {"exit_status": 1}):
        assert not reusable({**passed, **change}, shared=tmp_path)


def test_a_changed_tree_is_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipt_pipeline_tests.suite_results.PROJECT", tmp_path)
    assert not tree_state(tmp_path).clean
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    assert tree_state(tmp_path).clean
    (tmp_path / "new.txt").write_text("changed")
    assert not tree_state(tmp_path).clean


def test_the_report_counts_against_the_whole_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    tests = {"t": {"outcome": "passed", "requirements": ["R001", "R160"], "skip_reason": ""}}
    results.write_text(json.dumps({"exit_status": 0, "tests": tests}))
    assert main([str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of 160"
    assert lines[1].startswith("carried by no passing test: R002 R003 ")


def test_nothing_of_the_callers_set_up_reaches_the_tests() -> None:
    assert [name for name in os.environ if name.startswith(("RECEIPTS_", "DAGSTER_"))] == []


def test_a_parallel_run_gives_all_process_trees_to_one_worker() -> None:
    trees = {share_of(f"receipt_pipeline_tests/e2e/test_{name}.py::test_it") for name in ("demo", "drill")}
    files = {share_of(f"receipt_pipeline_tests/unit/test_{name}.py::test_it") for name in ("money", "pins")}
    assert len(trees) == 1
    assert len(files) == 2
