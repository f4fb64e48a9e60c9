"""The four-job drill, through real sensors, runs and checks in its sandbox."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from docs.generate.case_study import PAGE
from receipt_pipeline_tests.chaos.oracle.recount import recount
from receipt_pipeline_tests.e2e.command import BIN, COMMAND_S_MAX, answer_of, processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.requirement("R072", "R073", "R074", "R075", "R076", "R077", "R080", "R081", "R084", "R085", "R055", "R132")
def test_the_drill_passes_with_every_step_ok(tmp_path: Path) -> None:
    done = run_receipts(tmp_path / "home", "drill", "--json")

    answer = answer_of(done)
    assert [step for step in answer["steps"] if not step["ok"]] == []
    assert answer["verdict"] == "pass"
    assert done.returncode == 0
    assert len(answer["jobs"]) >= 4
    assert answer["report"]["accepted"] == len(answer["jobs"])
    assert processes_of(tmp_path / "home") == []
    assert_recounted(answer)
    assert_the_case_study_is_told_from(answer["records"])


@pytest.mark.parametrize("story", ["four-jobs", "lease-theft"])
def test_a_terminated_drill_leaves_neither_directory_nor_process(tmp_path: Path, story: str) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([str(BIN / "receipts"), "drill", "--story", story], env=environment)
    try:
        while not (started := list(tmp_path.glob("receipts-*/home/ledger.db"))):
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        assert process.wait(COMMAND_S_MAX) != 0
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.glob("receipts-*")) == []
    assert processes_of(started[0].parent) == []


def assert_recounted(answer: dict[str, Any]) -> None:
    report = answer["report"]
    counted = recount(answer["records"])
    asked = counted.pop("asked")
    assert {name: report[name] for name in counted} == counted
    assert report["accepted"] == report["terminal"] + report["in_flight"] + report["unresolved"]
    assert sorted((row["id"], row["kind"], row["state"]) for row in report["investigations"]) == asked
    assert set(answer["receipts"]) == {job["name"] for job in answer["jobs"]}


def assert_the_case_study_is_told_from(records: list[dict[str, Any]]) -> None:
    timeline = PAGE.read_text(encoding="utf-8").partition("<!-- timeline -->")[2].partition("<!-- /timeline")[0]
    told = re.findall(r"^\| \d+ \|.*?`(\w+)`", timeline, flags=re.MULTILINE)
    assert len(told) > 8
    kinds = iter(record["kind"] for record in records if record["job"] == "job-6")
    assert [kind for kind in told if kind not in kinds] == [], "each in its order"
