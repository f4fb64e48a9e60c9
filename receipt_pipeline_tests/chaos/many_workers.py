"""Many worker processes on one ledger under faults: kills, stops, cut connections, a server restart."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import func, select

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import LedgerUnavailable, PipelineError
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.request import resolve_limits
from receipt_pipeline.effects.channels import FileChannel
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.jobs.accept import NewJob, insert_job
from receipt_pipeline.ledger.jobs.waves import close_silent_waves, close_wave, register_worker, reserve_wave, wave_jobs
from receipt_pipeline.ledger.schema.jobs import jobs, releases
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline.worker.loop import Worker, work_group
from receipt_pipeline_tests.builders import CALLER, TENANT, a_request, approve, stored
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fork_server import fork_server
from receipt_pipeline_tests.postgres_server import PrivateServer, driver_address

LIMITS = Limits().replace(
    lease_ttl_s=2.5,
    heartbeat_s=0.5,
    item_timeout_s=60.0,
    retry_base_s=0.3,
    retry_cap_s=2.0,
    wave_slice_s=5.0,
    wave_ttl_s=3.0,
    wave_start_s=3.0,
    delivery_retry_s=0.3,
)
WAVE_JOBS = 8
EFFECTS_A_PASS = 60
ACCEPT_BATCH = 50
# Every tenth job has three items, so that there are boundaries within a job as well.
LARGE_EVERY = 10
# Longer than a lease, and longer than a transaction may idle.
STALL_S = LIMITS.work.lease_ttl_s + 3.5
# How long the worker without heartbeats pauses over its scans; a cut connection may shorten one pause.
PAUSES_OVER_SCANS_S = (STALL_S, 0.0, STALL_S, 0.0, STALL_S)
LOCK_WAIT_S = 4.0
IDLE_TRANSACTION_S = 2.0
PAUSES_S = (0.4, 1.2)


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The task of one worker process: its ledger, folder and name, and the seed of its random choices.

    One worker sends no heartbeat and pauses over some scans for longer than its lease, so that it learns
    from a rejected write, and not from its heartbeat, that another worker has taken over.
    """

    ledger_url: str
    folder: Path
    owner: str
    seed: int
    has_no_heartbeat: bool = False


def accept_jobs(ledger: Ledger, folder: Path, count: int) -> None:
    """Accept a number of small jobs whose scans are stored, each scan with different bytes."""
    approve(ledger)
    objects = LocalObjectStore(folder / "objects")
    for start in range(0, count, ACCEPT_BATCH):
        with ledger.transaction() as tx:
            for number in range(start, min(count, start + ACCEPT_BATCH)):
                items = 3 if number % LARGE_EVERY == 0 else 1
                request = a_request(items=items, key=f"key-{number:05d}")
                for ordinal in range(1, items + 1):
                    scan = f"{request.idempotency_key}/{ordinal}".encode()
                    objects.put(scan_key(TENANT, digest_of_bytes(scan)), scan)
                limits = resolve_limits(request.limits, items=items, cutoff_margin_s=LIMITS.intake.cutoff_margin_s)
                insert_job(
                    tx, NewJob(tenant=TENANT, caller=CALLER, request=request, limits=limits, stored=stored(request))
                )


def services_of(ledger: Ledger, folder: Path) -> tuple[EffectContext, ReconciliationContext]:
    """Return the effects and the reconciler over a ledger and the folder of its objects and outbox."""
    objects, outbox = LocalObjectStore(folder / "objects"), folder / "outbox"
    effects = EffectContext(ledger, objects, FileChannel(outbox), outbox, LIMITS)
    return effects, ReconciliationContext(ledger, objects, LIMITS)


def no_heartbeat(_beat: Callable[[], None]) -> Callable[[], None]:
    """Start nothing, and stop nothing."""
    return lambda: None


def run_worker(task: WorkerTask) -> None:
    """Work until the folder has a file `stop`: waves, deliveries, consumption, reconciliation.

    An expected error is repeated, as an operator would do. Any other error is recorded for the test,
    which expects none.
    """
    logging.disable(logging.CRITICAL)
    ledger = open_ledger(task.ledger_url, lock_wait_s=LOCK_WAIT_S, idle_transaction_s=IDLE_TRANSACTION_S)
    drawn = random.Random(task.seed)
    pauses = iter(PAUSES_OVER_SCANS_S if task.has_no_heartbeat else ())
    chain = ScriptedChain(on_classify=lambda data: time.sleep(next(pauses, drawn.uniform(0.0, 0.03))))
    effects, reconciler = services_of(ledger, task.folder)
    worker = Worker(
        ledger=ledger,
        objects=effects.objects,
        chains=lambda pins: chain,
        limits=LIMITS,
        owner=task.owner,
        run_id=f"run-{task.owner}",
        start_heartbeat=no_heartbeat if task.has_no_heartbeat else None,
    )
    while not (task.folder / "stop").exists():
        try:
            if not _work_wave(worker):
                time.sleep(0.1)
            if drawn.random() < 0.25:
                deliver(effects, limit=EFFECTS_A_PASS, time_bound_s=2.0)
                consume_due(effects, limit=EFFECTS_A_PASS, time_bound_s=2.0)
            if drawn.random() < 0.25:
                reconcile_ledger(reconciler)
        except PipelineError as error:
            _note(task, error)
            time.sleep(0.05)
        except Exception as error:
            _note(task, error)
            time.sleep(0.05)
    ledger.close()


def _work_wave(worker: Worker) -> bool:
    """Reserve a wave, work its jobs and close it; False when nothing was ready."""
    with worker.ledger.transaction() as tx:
        known_releases = tx.rows(select(releases.c.release_id))
        register_worker(tx, worker_id="installation", release_ids=[row["release_id"] for row in known_releases])
        close_silent_waves(tx, limits=LIMITS)
        wave = reserve_wave(tx, items_max=WAVE_JOBS, jobs_max=WAVE_JOBS, worker_ttl_s=LIMITS.work.worker_ttl_s)
        reserved = [row["job_id"] for row in wave_jobs(tx, wave.wave_id)] if wave else []
    if wave is None:
        return False
    try:
        work_group(worker, wave_id=wave.wave_id, job_ids=reserved)
    finally:
        with worker.ledger.transaction() as tx:
            close_wave(tx, wave.wave_id)
    return True


def _note(task: WorkerTask, error: Exception) -> None:
    expected = isinstance(error, PipelineError)
    note = {
        "owner": task.owner,
        "expected": expected,
        "what": error.reason.code if isinstance(error, PipelineError) else repr(error),
        "cause": str(error.facts.get("cause", "")) if isinstance(error, PipelineError) else "",
        "text": "" if expected else traceback.format_exc(),
    }
    with (task.folder / "notes").open("a") as file:
        file.write(json.dumps(note) + "\n")


def notes_in(folder: Path) -> list[dict[str, Any]]:
    """Return the notes of the workers."""
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(slots=True)
class WorkerPool:
    """Worker processes that are killed, stopped, disconnected and replaced.

    Attributes:
        kills, stalls, cuts, restarts: how often each fault happened.
    """

    server: PrivateServer
    ledger_url: str
    folder: Path
    size: int
    chance: random.Random
    kills: int = 0
    stalls: int = 0
    cuts: int = 0
    restarts: int = 0
    _members: dict[str, BaseProcess] = field(default_factory=dict)
    _stopped: dict[str, float] = field(default_factory=dict)
    _protected: set[str] = field(default_factory=set)
    _started: int = 0

    def fill(self) -> None:
        """Start workers until the pool is complete."""
        self._members = {name: process for name, process in self._members.items() if process.is_alive()}
        while len(self._members) < self.size:
            self._started += 1
            name, has_no_heartbeat = f"worker-{self._started:04d}", self._started == 1
            task = WorkerTask(self.ledger_url, self.folder, name, self._started, has_no_heartbeat)
            if has_no_heartbeat:
                self._protected.add(name)
            process = fork_server.Process(target=run_worker, args=(task,))
            process.start()
            self._members[task.owner] = process

    def kill_one(self) -> None:
        """SIGKILL a worker at any moment."""
        name = self.chance.choice(sorted(set(self._members) - set(self._stopped) - self._protected))
        self._members[name].kill()
        self._members[name].join()
        self.kills += 1
        self.fill()

    def stop_one(self, ledger: Ledger) -> None:
        """SIGSTOP a worker that holds a lease, for longer than the lease lasts."""
        with ledger.reading() as tx:
            owners = {row["lease_owner"] for row in tx.rows(select(jobs.c.lease_owner).distinct())}
        awake = sorted((owners & set(self._members)) - set(self._stopped) - self._protected)
        if not awake:
            return
        name = self.chance.choice(awake)
        self._signal(name, signal.SIGSTOP)
        self._stopped[name] = time.monotonic() + STALL_S
        self.stalls += 1

    def resume_due(self, *, all_workers: bool = False) -> None:
        """SIGCONT the stopped workers whose time has come."""
        for name, until in list(self._stopped.items()):
            if all_workers or time.monotonic() >= until:
                self._signal(name, signal.SIGCONT)
                del self._stopped[name]

    def cut_connections(self, *, limit: int = 3) -> None:
        """Let the server terminate some connections."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " ORDER BY random() LIMIT %s) AS chosen"
        )
        with psycopg.connect(driver_address(self.ledger_url), autocommit=True) as connection:
            self.cuts += len(connection.execute(query, (limit,)).fetchall())

    def restart_server(self) -> None:
        """Crash the server and start it again."""
        self.server.restart()
        self.restarts += 1

    def stop_all(self, *, within_s: float = 60.0) -> None:
        """Let every worker finish; kill those that do not."""
        self.resume_due(all_workers=True)
        (self.folder / "stop").touch()
        deadline = time.monotonic() + within_s
        for process in self._members.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _signal(self, name: str, sent: signal.Signals) -> None:
        process = self._members[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, sent)


def count_open(ledger: Ledger) -> int:
    """Return how many jobs have no terminal record yet."""
    query = select(func.count()).select_from(jobs)
    with ledger.reading() as tx:
        return int(tx.scalar(query.where(jobs.c.state.in_([JobState.ACCEPTED, JobState.RUNNING]))) or 0)


def work_under_faults(pool: WorkerPool, ledger: Ledger, *, total: int, within_s: float) -> None:
    """Let the pool work under continuous faults until every job is closed."""
    faults = ["kill", "sleep", "kill", "cut", "kill", "sleep", "cut", "kill"]
    deadline = time.monotonic() + within_s
    turn = 0
    pool.fill()
    while True:
        assert time.monotonic() < deadline, "jobs are still open"
        time.sleep(pool.chance.uniform(*PAUSES_S))
        pool.resume_due()
        try:
            left = count_open(ledger)
            if not left:
                return
            if pool.restarts == 0 and left <= total // 2:
                pool.restart_server()
                continue
            fault = faults[turn % len(faults)]
            turn += 1
            if fault == "kill":
                pool.kill_one()
            elif fault == "cut":
                pool.cut_connections()
            else:
                pool.stop_one(ledger)
        except (LedgerUnavailable, psycopg.OperationalError):
            continue  # Our own connection was among those that were cut.
