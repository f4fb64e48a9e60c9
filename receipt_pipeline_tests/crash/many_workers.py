"""Many worker processes on one ledger, and what befalls them: kills, sleeps, cut connections, a restart."""

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
from receipt_pipeline.ledger.jobs.waves import (
    close_silent_waves,
    close_wave,
    register_worker,
    reserve_wave,
    wave_jobs,
)
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
# Every so many jobs has three items, so that there are boundaries within a job as well.
LARGE_EVERY = 10
# Longer than a lease, and than a transaction may stand still.
STALL_S = LIMITS.work.lease_ttl_s + 3.5
# What a worker without a heart does over its scans, first to last; a cut connection may spoil one doze.
DOZES_S = (STALL_S, 0.0, STALL_S, 0.0, STALL_S)
LOCK_WAIT_S = 4.0
IDLE_TRANSACTION_S = 2.0
PAUSES_S = (0.4, 1.2)


@dataclass(frozen=True, slots=True)
class Shift:
    """What one worker process is told: its ledger, its folder, its name, and the seed of its habits.

    One without a heart sends no heartbeat and dozes off over some scans for longer than its lease, so
    that it finds out by a refused write, and not by its heartbeat, that somebody has taken over.
    """

    ledger_url: str
    folder: Path
    owner: str
    seed: int
    heartless: bool = False


def accept_jobs(ledger: Ledger, folder: Path, count: int) -> None:
    """Accept so many small jobs whose scans are stored, every scan of its own bytes."""
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
                limits = resolve_limits(
                    request.limits, items=items, cutoff_margin_s=LIMITS.intake.cutoff_margin_s
                )
                insert_job(
                    tx,
                    NewJob(
                        tenant=TENANT, caller=CALLER, request=request, limits=limits, stored=stored(request)
                    ),
                )


def services_of(ledger: Ledger, folder: Path) -> tuple[EffectContext, ReconciliationContext]:
    """Return the effects and the reconciler over a ledger and the folder of its objects and outbox."""
    objects, outbox = LocalObjectStore(folder / "objects"), folder / "outbox"
    effects = EffectContext(ledger, objects, FileChannel(outbox), outbox, LIMITS)
    return effects, ReconciliationContext(ledger, objects, LIMITS)


def no_heartbeat(_beat: Callable[[], None]) -> Callable[[], None]:
    """Start nothing, and stop nothing."""
    return lambda: None


def work_shift(shift: Shift) -> None:
    """Work until the folder holds a file `stop`: waves, deliveries, consumption, reconciliation.

    What the product announces (its errors) is taken as an operator would: try again. Anything else is
    written down for the test, which expects none.
    """
    logging.disable(logging.CRITICAL)
    ledger = open_ledger(shift.ledger_url, lock_wait_s=LOCK_WAIT_S, idle_transaction_s=IDLE_TRANSACTION_S)
    habits = random.Random(shift.seed)
    dozes = iter(DOZES_S if shift.heartless else ())
    chain = ScriptedChain(on_classify=lambda data: time.sleep(next(dozes, habits.uniform(0.0, 0.03))))
    effects, reconciler = services_of(ledger, shift.folder)
    worker = Worker(
        ledger=ledger,
        objects=effects.objects,
        chains=lambda pins: chain,
        limits=LIMITS,
        owner=shift.owner,
        run_id=f"run-{shift.owner}",
        start_heartbeat=no_heartbeat if shift.heartless else None,
    )
    while not (shift.folder / "stop").exists():
        try:
            if not _work_wave(worker):
                time.sleep(0.1)
            if habits.random() < 0.25:
                deliver(effects, limit=EFFECTS_A_PASS, time_bound_s=2.0)
                consume_due(effects, limit=EFFECTS_A_PASS, time_bound_s=2.0)
            if habits.random() < 0.25:
                reconcile_ledger(reconciler)
        except PipelineError as error:
            _note(shift, error)
            time.sleep(0.05)
        except Exception as error:
            _note(shift, error)
            time.sleep(0.05)
    ledger.close()


def _work_wave(worker: Worker) -> bool:
    """Reserve a wave, work its jobs and close it; False when nothing was ready."""
    with worker.ledger.transaction() as tx:
        carried = tx.rows(select(releases.c.release_id))
        register_worker(tx, worker_id="installation", release_ids=[row["release_id"] for row in carried])
        close_silent_waves(tx, limits=LIMITS)
        wave = reserve_wave(
            tx, items_max=WAVE_JOBS, jobs_max=WAVE_JOBS, worker_ttl_s=LIMITS.work.worker_ttl_s
        )
        reserved = [row["job_id"] for row in wave_jobs(tx, wave.wave_id)] if wave else []
    if wave is None:
        return False
    try:
        work_group(worker, wave_id=wave.wave_id, job_ids=reserved)
    finally:
        with worker.ledger.transaction() as tx:
            close_wave(tx, wave.wave_id)
    return True


def _note(shift: Shift, error: Exception) -> None:
    expected = isinstance(error, PipelineError)
    note = {
        "owner": shift.owner,
        "expected": expected,
        "what": error.reason.code if isinstance(error, PipelineError) else repr(error),
        "cause": str(error.facts.get("cause", "")) if isinstance(error, PipelineError) else "",
        "text": "" if expected else traceback.format_exc(),
    }
    with (shift.folder / "notes").open("a") as file:
        file.write(json.dumps(note) + "\n")


def notes_in(folder: Path) -> list[dict[str, Any]]:
    """Return what the workers wrote down."""
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(slots=True)
class Crew:
    """Worker processes that are replaced as they fall, and the hand that fells them.

    Attributes:
        kills, stalls, cuts, restarts: how often each misfortune was dealt out.
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
    _asleep: dict[str, float] = field(default_factory=dict)
    _spared: set[str] = field(default_factory=set)
    _hired: int = 0

    def fill(self) -> None:
        """Start workers until the crew is whole."""
        self._members = {name: process for name, process in self._members.items() if process.is_alive()}
        while len(self._members) < self.size:
            self._hired += 1
            name, heartless = f"worker-{self._hired:04d}", self._hired == 1
            shift = Shift(self.ledger_url, self.folder, name, self._hired, heartless)
            if heartless:
                self._spared.add(name)
            process = fork_server.Process(target=work_shift, args=(shift,))
            process.start()
            self._members[shift.owner] = process

    def kill_one(self) -> None:
        """SIGKILL a worker, whatever it is doing."""
        name = self.chance.choice(sorted(set(self._members) - set(self._asleep) - self._spared))
        self._members[name].kill()
        self._members[name].join()
        self.kills += 1
        self.fill()

    def put_to_sleep(self, ledger: Ledger) -> None:
        """SIGSTOP a worker that holds a lease, for longer than the lease lasts."""
        with ledger.reading() as tx:
            owners = {row["lease_owner"] for row in tx.rows(select(jobs.c.lease_owner).distinct())}
        awake = sorted((owners & set(self._members)) - set(self._asleep) - self._spared)
        if not awake:
            return
        name = self.chance.choice(awake)
        self._signal(name, signal.SIGSTOP)
        self._asleep[name] = time.monotonic() + STALL_S
        self.stalls += 1

    def wake_due(self, *, everybody: bool = False) -> None:
        """SIGCONT the sleepers whose time has come."""
        for name, until in list(self._asleep.items()):
            if everybody or time.monotonic() >= until:
                self._signal(name, signal.SIGCONT)
                del self._asleep[name]

    def cut_connections(self, *, limit: int = 3) -> None:
        """Let the server end some connections of its own accord."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " ORDER BY random() LIMIT %s) AS chosen"
        )
        with psycopg.connect(driver_address(self.ledger_url), autocommit=True) as connection:
            self.cuts += len(connection.execute(query, (limit,)).fetchall())

    def restart_server(self) -> None:
        """Crash the server and start it again; no worker is told."""
        self.server.restart()
        self.restarts += 1

    def send_home(self, *, within_s: float = 60.0) -> None:
        """Let everybody finish and go; who does not is killed."""
        self.wake_due(everybody=True)
        (self.folder / "stop").touch()
        give_up = time.monotonic() + within_s
        for process in self._members.values():
            process.join(max(0.0, give_up - time.monotonic()))
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


def work_through_it_all(crew: Crew, ledger: Ledger, *, total: int, within_s: float) -> None:
    """Let the crew work until every job is closed, and something befall it all the while."""
    misfortunes = ["kill", "sleep", "kill", "cut", "kill", "sleep", "cut", "kill"]
    give_up = time.monotonic() + within_s
    turn = 0
    crew.fill()
    while True:
        assert time.monotonic() < give_up, "jobs are still open"
        time.sleep(crew.chance.uniform(*PAUSES_S))
        crew.wake_due()
        try:
            left = count_open(ledger)
            if not left:
                return
            if crew.restarts == 0 and left <= total // 2:
                crew.restart_server()
                continue
            misfortune = misfortunes[turn % len(misfortunes)]
            turn += 1
            if misfortune == "kill":
                crew.kill_one()
            elif misfortune == "cut":
                crew.cut_connections()
            else:
                crew.put_to_sleep(ledger)
        except (LedgerUnavailable, psycopg.OperationalError):
            continue  # Our own connection was among those that were cut.
