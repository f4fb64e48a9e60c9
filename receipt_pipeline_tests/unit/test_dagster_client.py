"""What is said of a run that was launched: done, or failed by a reason that names the run."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster_graphql import DagsterGraphQLClientError

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.defs import client
from receipt_pipeline.defs.client import launch_job, wait_for_run

Status = dg.DagsterRunStatus


class ScriptedClient:
    """Answers with these statuses, one after the other; an error is raised."""

    def __init__(self, *answers: dg.DagsterRunStatus | DagsterGraphQLClientError) -> None:
        self._answers = list(answers)

    def submit_job_execution(self, _job: str, **_: str) -> str:
        self.get_run_status("")
        return "run-1"

    def get_run_status(self, _run_id: str) -> dg.DagsterRunStatus | None:
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, DagsterGraphQLClientError):
            raise answer
        return answer


def script(monkeypatch: pytest.MonkeyPatch, *answers: dg.DagsterRunStatus | DagsterGraphQLClientError) -> None:
    monkeypatch.setattr(client, "_client", lambda _port: ScriptedClient(*answers))
    monkeypatch.setattr(client, "POLL_S", 0.0)


def test_a_run_is_waited_for_until_it_succeeded_also_past_a_busy_web_server(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, Status.STARTED, DagsterGraphQLClientError("busy"), Status.SUCCESS)
    polled: list[int] = []
    wait_for_run(1, "run-1", job="accounting", wait_s=60, on_poll=lambda: polled.append(1))
    assert len(polled) == 2


@pytest.mark.parametrize("status", [Status.FAILURE, Status.CANCELED])
def test_a_run_that_failed_is_named(monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus) -> None:
    script(monkeypatch, status)
    with pytest.raises(PipelineError) as failed:
        wait_for_run(1, "run-1", job="accounting", wait_s=60)
    assert failed.value.reason.code == "RUN.FAILED.v1"
    assert failed.value.facts == {"job": "accounting", "run": "run-1", "status": status.value}


def test_a_launch_that_is_refused_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, DagsterGraphQLClientError("JobNotFoundError\nmore"))
    with pytest.raises(PipelineError) as failed:
        launch_job(1, "accounting")
    assert failed.value.reason.code == "RUN.FAILED.v1"
    assert failed.value.facts == {"job": "accounting", "answer": "JobNotFoundError"}


def test_a_run_that_takes_too_long_is_named_with_what_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch)
    with pytest.raises(PipelineError) as late:
        wait_for_run(1, "run-1", job="accounting", wait_s=0)
    assert late.value.reason.code == "RUN.UNFINISHED.v1"
    assert (late.value.facts["run"], late.value.facts["waited_for"]) == ("run-1", "the accounting run")
