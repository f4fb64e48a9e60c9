"""What a whole run of the suite leaves behind: each test's outcome and the requirements that it proves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
REQUIREMENTS_PROPERTY = "requirements"
# The worst report of a test decides: set-up, call and tear-down each send one.
SEVERITY = {"passed": 0, "skipped": 1, "failed": 2}


@dataclass(frozen=True, slots=True)
class TreeState:
    """What was tested: the commit, whether the tree held exactly that, and whether ../shared was there."""

    commit: str
    clean: bool
    shared: bool


@dataclass(slots=True)
class TestOutcome:
    """One test's outcome so far, its requirement ids, and why it was skipped."""

    __test__ = False

    outcome: str
    requirements: list[str]
    skip_reason: str = ""


def tree_state(shared: Path) -> TreeState:
    """Ask git which commit the working tree holds; outside a repository nothing counts as clean."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain")
    return TreeState(commit=commit or "", clean=bool(commit) and changes == "", shared=shared.is_dir())


def _git(*arguments: str) -> str | None:
    answer = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def attach_requirements(items: Iterable[pytest.Item]) -> None:
    for item in items:
        ids = sorted({str(name) for mark in item.iter_markers("requirement") for name in mark.args})
        item.user_properties.append((REQUIREMENTS_PROPERTY, ids))


class SuiteRecorder:
    """Collects outcomes in the controlling process, writes the result file, and judges skips.

    Args:
        results: the file to write at the end, or None.
        strict: fail the run for a skip whose reason is none of the allowed ones.
        allowed_skips: beginnings of the reasons for which this machine may skip.
        before: the tree as it was before the first test.
        shared: the folder whose presence is recorded.
    """

    def __init__(
        self, *, results: Path | None, strict: bool, allowed_skips: tuple[str, ...], before: TreeState, shared: Path
    ) -> None:
        self.results = results
        self.strict = strict
        self.allowed_skips = allowed_skips
        self.before = before
        self.shared = shared
        self.tests: dict[str, TestOutcome] = {}

    def pytest_sessionstart(self) -> None:
        if self.results is not None:
            self.results.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        kept = self.tests.setdefault(
            report.nodeid,
            TestOutcome("passed", list(properties.get(REQUIREMENTS_PROPERTY, []))),  # type: ignore[call-overload]
        )
        if SEVERITY[report.outcome] > SEVERITY[kept.outcome]:
            kept.outcome = report.outcome
        if report.skipped:
            kept.skip_reason = _skip_reason(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run for skips that it could have run, then write the result file."""
        if self.strict and self.needless_skips() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.results is not None:
            self.results.write_text(json.dumps(self.as_document(int(session.exitstatus)), indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, reason in self.needless_skips() if self.strict else ():
            terminalreporter.write_line(f"SKIPPED but could be run here: {name}: {reason}", red=True)

    def needless_skips(self) -> list[tuple[str, str]]:
        return [
            (name, test.skip_reason)
            for name, test in self.tests.items()
            if test.outcome == "skipped" and not test.skip_reason.startswith(self.allowed_skips)
        ]

    def as_document(self, exit_status: int) -> dict[str, object]:
        after = tree_state(self.shared)
        return {
            **asdict(self.before),
            "clean": self.before.clean and after == self.before,
            "exit_status": exit_status,
            "tests": {name: asdict(test) for name, test in sorted(self.tests.items())},
        }


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
