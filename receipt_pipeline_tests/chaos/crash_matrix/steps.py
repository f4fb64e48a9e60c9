"""The steps that processes of the crash matrix run, each in its cell's own instance."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from sqlalchemy import func, select

from receipt_pipeline.app import maintenance, operator, submitter
from receipt_pipeline.app.context import AppContext, new_context
from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.canonical import digest_of, digest_of_bytes
from receipt_pipeline.core.errors import NotAllowed, PipelineError
from receipt_pipeline.core.failure_points import install_plan
from receipt_pipeline.core.request import JOB_CONTRACT
from receipt_pipeline.drill import four_jobs
from receipt_pipeline.drill.failure_plan import Plan, read_plan
from receipt_pipeline.drill.sandbox import ScriptedReader
from receipt_pipeline.ledger.effects.retention import due_results
from receipt_pipeline.ledger.jobs.expire import overdue_job_ids
from receipt_pipeline.ledger.jobs.failures import expired_leases
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.ledger.jobs.waves import open_waves
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.settings import read_settings
from receipt_pipeline.worker.heartbeat import stop_all
from receipt_pipeline_tests.chaos.crash_matrix.verify import is_finished, note_outcomes, verify

KEY = "cell"
REPLACEMENT_KEY = "replacement"
ATTEMPTS_MAX = 4
PASSES_S_MAX = 45.0
AWAIT_S_MAX = 30.0
POLL_S = 0.1
PASS_PAUSE_S = 0.4
GROUP_ITEMS = 8
BROKE = 3


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What one process is started for; it travels as JSON.

    Attributes:
        step: a name of `STEPS`.
        folder: the cell's own folder; the data directory is in it.
        environment: the variables from which the settings are read.
        plan: the failure plan of this process, "" for none.
        number: counts the processes of a cell.
        facts: the scenario's `items`, `job_limits` and `page_s`.
    """

    step: str
    folder: str
    environment: Mapping[str, str]
    plan: str = ""
    number: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the order as plain JSON."""
        return asdict(self)


@dataclass(slots=True)
class StepProcess:
    """A running step: the open services and the errors it met."""

    order: StepOrder
    services: AppContext
    errors: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Return the cell's folder."""
        return Path(self.order.folder)

    def attempt(self, act: Callable[[], object]) -> bool:
        """Do something as a sensor tick does: a failure is recorded, and a later tick repeats it."""
        try:
            act()
        except PipelineError as error:
            self.errors.append(error.reason.code)
            return False
        return True

    def retry(self, act: Callable[[], object]) -> None:
        """Repeat an action within a bound, as a person or the next tick would."""
        for _ in range(ATTEMPTS_MAX):
            if self.attempt(act):
                return
            time.sleep(POLL_S)


def run_step_order(order: StepOrder) -> int:
    """Run the step of the order and write its errors next to the data directory; returns the exit status."""
    settings = read_settings(order.environment)
    services = new_context(settings)
    services.chains.engine = ScriptedReader(float(order.facts.get("page_s", 0.0)))
    process = StepProcess(order, services)
    if order.plan:
        install_plan(Plan(read_plan(order.plan), stop_all))
    STEPS[order.step](process)
    services.close()
    answers = process.folder / "answers"
    answers.mkdir(exist_ok=True)
    (answers / f"{order.number}.json").write_text(json.dumps({"errors": process.errors}))
    return 0


def _set_up(process: StepProcess) -> None:
    """Do nothing more: opening the services made folders, schema and releases."""


def _submit(process: StepProcess) -> None:
    """Submit the cell's manifest until a job id is returned; a repeat finds the same job."""
    manifest = _manifest(process, KEY)

    def submit_once() -> None:
        (answer,) = submitter.submit(
            process.services, process.services.principal(), [manifest], key=None, new=False, release=None
        )
        (line,) = answer["lines"]
        assert line["job_id"], line

    process.retry(submit_once)


def _manifest(process: StepProcess, key: str) -> Path:
    """Write scans and manifest once; the processes of a cell submit the same file."""
    folder = process.folder / "submitted" / key
    path = folder / "manifest.json"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for number in range(1, int(process.order.facts.get("items", 1)) + 1):
        scan = folder / f"{number}.png"
        Image.new("RGB", (60 + number, 40 + len(key)), "white").save(scan)
        digest = digest_of_bytes(scan.read_bytes()).removeprefix("sha256:")
        listed.append({"item_id": f"r-{number}", "uri": scan.name, "sha256": digest})
    document = {
        "contract": JOB_CONTRACT,
        "idempotency_key": key,
        "limits": dict(process.order.facts.get("job_limits", {})),
        "items": listed,
    }
    written = path.with_suffix(".part")
    written.write_text(json.dumps(document))
    written.replace(path)
    return path


def _passes(process: StepProcess) -> None:
    """Run passes as sensors and waves do, until nothing is left to do or the bound is reached."""
    end = time.monotonic() + PASSES_S_MAX
    while True:
        process.attempt(partial(maintenance.reconcile_ledger, process.services))
        process.attempt(lambda: _launch_waves(process))
        process.attempt(partial(maintenance.deliver_and_consume, process.services))
        if is_finished(process.services) or time.monotonic() > end:
            break
        time.sleep(PASS_PAUSE_S)
    note_outcomes(process.services, process.folder)


def _launch_waves(process: StepProcess) -> None:
    for wave in maintenance.dispatch_jobs(process.services).to_launch:
        _run_wave(process, wave.wave_id)


def _run_wave(process: StepProcess, wave_id: str) -> None:
    """Do what the steps of a wave's run do; a run that fails has its wave closed, as the sensor would."""
    services, run_id = process.services, f"run-{process.order.number}"
    try:
        groups = maintenance.begin_wave(services, wave_id, run_id=run_id, items_per_group=GROUP_ITEMS)
        for group in groups:
            maintenance.work_group(services, wave_id, group, run_id=run_id)
        maintenance.continue_wave(services, wave_id, run_id=run_id)
    finally:
        maintenance.close_wave(services, wave_id)


def _same_waves(process: StepProcess) -> None:
    """Run every open wave once more, as a run that was launched twice."""
    with process.services.ledger.reading() as tx:
        open_now = [str(row["wave_id"]) for row in open_waves(tx)]
    for wave_id in open_now:
        process.attempt(lambda wave_id=wave_id: _run_wave(process, wave_id))  # type: ignore[misc]


def _effects(process: StepProcess) -> None:
    process.retry(partial(maintenance.deliver_and_consume, process.services))


def _reconcile(process: StepProcess) -> None:
    process.retry(partial(maintenance.reconcile_everything, process.services))


def _purge(process: StepProcess) -> None:
    process.retry(partial(maintenance.purge_expired, process.services))


def _publish(process: StepProcess) -> None:
    process.retry(partial(maintenance.publish_report, process.services))


def _cancel(process: StepProcess) -> None:
    """Cancel the cell's job; a refusal because it is closed counts as done."""
    process.retry(
        lambda: _act_on_job(
            process, lambda job_id: submitter.cancel_job(process.services, process.services.principal(), job_id)
        )
    )
    note_outcomes(process.services, process.folder)


def _supersede(process: StepProcess) -> None:
    """Replace the cell's job by another manifest; a refusal because it is closed counts as done."""
    manifest = str(_manifest(process, REPLACEMENT_KEY))
    process.retry(
        lambda: _act_on_job(
            process,
            lambda job_id: submitter.supersede_job(process.services, process.services.principal(), job_id, by=manifest),
        )
    )
    note_outcomes(process.services, process.folder)


def _requeue(process: StepProcess) -> None:
    """Return the cell's job to the queue; a refusal because it is closed counts as done."""
    process.retry(
        lambda: _act_on_job(
            process, lambda job_id: operator.requeue_job(process.services, process.services.principal(), job_id)
        )
    )
    note_outcomes(process.services, process.folder)


def _act_on_job(process: StepProcess, order: Callable[[str], object]) -> None:
    try:
        order(_job_id(process.services))
    except NotAllowed as refusal:
        process.errors.append(refusal.reason.code)


def _job_id(services: AppContext) -> str:
    """Return the id of the job that was submitted first; another may have replaced it."""
    with services.ledger.reading() as tx:
        return str(tx.scalar(select(jobs.c.job_id).where(jobs.c.idempotency_key == KEY)))


def _write_late(process: StepProcess) -> None:
    """Record what a stale worker leaves: a rejected write with another digest."""
    job_id = _job_id(process.services)
    with process.services.ledger.transaction() as tx:
        record_rejected_write(
            tx, FencingToken(job_id, 0), write_kind="checkpoint", ordinal=0, digest=digest_of("another outcome")
        )


def _lose_object(process: StepProcess) -> None:
    four_jobs.remove_result_object(process.services, _job_id(process.services))


def _await_lease_end(process: StepProcess) -> None:
    _await(process, lambda tx: bool(expired_leases(tx, limit=1)))


def _await_queue_deadline(process: StepProcess) -> None:
    _await(process, lambda tx: bool(overdue_job_ids(tx, limit=1)))


def _await_retention(process: StepProcess) -> None:
    _await(process, lambda tx: bool(due_results(tx, limit=1)))


def _await(process: StepProcess, holds: Callable[[Any], bool]) -> None:
    """Wait until a condition holds by the ledger's clock."""
    end = time.monotonic() + AWAIT_S_MAX
    while time.monotonic() < end:
        with process.services.ledger.reading() as tx:
            if holds(tx):
                return
        time.sleep(POLL_S)
    raise AssertionError(f"{process.order.step}: the condition never held")


def _verify(process: StepProcess) -> None:
    """Reconcile twice and write the verdict."""
    document = verify(process.services, process.folder)
    with process.services.ledger.reading() as tx:
        document["jobs"] = int(tx.scalar(select(func.count()).select_from(jobs)) or 0)
    (process.folder / "verdict.json").write_text(json.dumps(document, default=str))


STEPS: Mapping[str, Callable[[StepProcess], None]] = {
    "set_up": _set_up,
    "submit": _submit,
    "passes": _passes,
    "same_waves": _same_waves,
    "effects": _effects,
    "reconcile": _reconcile,
    "purge": _purge,
    "publish": _publish,
    "cancel": _cancel,
    "supersede": _supersede,
    "requeue": _requeue,
    "write_late": _write_late,
    "lose_object": _lose_object,
    "await_lease_end": _await_lease_end,
    "await_queue_deadline": _await_queue_deadline,
    "await_retention": _await_retention,
    "verify": _verify,
}
