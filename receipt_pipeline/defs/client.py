"""Launch and watch Dagster runs through the web server."""

import time
from collections.abc import Callable
from contextlib import suppress

import dagster as dg
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.reasons import RUN_FAILED, RUN_UNFINISHED
from receipt_pipeline.runtime.processes import HOST
from receipt_pipeline.runtime.supervisor import LOCATION

POLL_S = 1.0
_ENDED_BADLY = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def launch_job(port: int, job: str) -> str:
    """Launch a job of the code location and return the run's id.

    Raises:
        PipelineError: RUN.FAILED.v1 when the web server refuses the launch or does not answer.
    """
    try:
        return _client(port).submit_job_execution(
            job, repository_location_name=LOCATION, repository_name="__repository__"
        )
    except DagsterGraphQLClientError as error:
        answer = str(error.args[0]).partition("\n")[0]
        raise PipelineError(RUN_FAILED, job=job, answer=answer) from error


def wait_for_run(
    port: int, run_id: str, *, job: str, wait_s: float, on_poll: Callable[[], None] = lambda: None
) -> None:
    """Return once the run has succeeded; `on_poll` is called about every second.

    Raises:
        PipelineError: RUN.FAILED.v1 when it failed or was canceled, RUN.UNFINISHED.v1 after `wait_s`.
    """
    client, end = _client(port), time.monotonic() + wait_s
    while time.monotonic() < end:
        status = None
        with suppress(DagsterGraphQLClientError):  # A busy web server may answer the next time.
            status = client.get_run_status(run_id)
        if status is dg.DagsterRunStatus.SUCCESS:
            return
        if status in _ENDED_BADLY:
            raise PipelineError(RUN_FAILED, job=job, run=run_id, status=status.value)
        on_poll()
        time.sleep(POLL_S)
    raise PipelineError(RUN_UNFINISHED, waited_for=f"the {job} run", waited_s=wait_s, job=job, run=run_id)


def _client(port: int) -> DagsterGraphQLClient:
    return DagsterGraphQLClient(HOST, port_number=port, timeout=20)
