"""What the demo says of its accounting run: done, or failed by a reason that names the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from receipt_pipeline.cli import serve
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.runtime import supervisor as hosting
from receipt_pipeline.runtime.supervisor import Hosted

LAUNCHED = {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": "run-1"}}}


def answering(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
    """Let the web server give these answers, one after the other."""
    waiting: Iterator[dict[str, Any]] = iter(answers)
    monkeypatch.setattr(hosting, "ask", lambda *_: next(waiting))
    monkeypatch.setattr(serve, "POLL_S", 0.0)


def standing(status: str) -> dict[str, Any]:
    """Return the web server's answer about the run."""
    return {"runOrError": {"status": status}}


def test_the_demo_waits_until_its_accounting_run_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, LAUNCHED, standing("STARTED"), standing("SUCCESS"))
    serve._run_accounting(Hosted(1, ()))


@pytest.mark.parametrize(
    ("answers", "facts"),
    [
        ((LAUNCHED, standing("FAILURE")), {"run": "run-1", "status": "FAILURE"}),
        ((LAUNCHED, standing("CANCELED")), {"run": "run-1", "status": "CANCELED"}),
        (({"launchRun": {"__typename": "PythonError"}},), {"answer": "PythonError"}),
    ],
)
def test_a_run_that_failed_is_named_and_not_called_a_silent_server(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[dict[str, Any], ...], facts: dict[str, str]
) -> None:
    answering(monkeypatch, *answers)
    with pytest.raises(PipelineError) as failed:
        serve._run_accounting(Hosted(1, ()))
    assert failed.value.reason.code == "RUN.FAILED.v1"
    assert failed.value.facts == {"job": "accounting", **facts}


def test_a_run_that_takes_too_long_is_named_with_the_place_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, LAUNCHED)
    monkeypatch.setattr(serve, "DEMO_WAIT_S", 0.0)
    with pytest.raises(PipelineError) as late:
        serve._run_accounting(Hosted(1, ()))
    assert late.value.reason.code == "RUN.UNFINISHED.v1"
    assert (late.value.facts["run"], late.value.facts["waited_for"]) == ("run-1", "the accounting run")
