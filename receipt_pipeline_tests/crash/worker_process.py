"""A real worker process that ends, stops or stalls at a named place, for the crash tests."""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from receipt_pipeline.core.failure_points import install_plan
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.worker.loop import Worker, work_group
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fork_server import fork_server


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker process does, and where it is killed.

    Attributes:
        now: the fixed time of its ledger's clock.
        place: a failure point, "" for none; `passage` counts from 1.
        sent: the signal that the process sends itself there, unless it stalls there for `stalls_s`.
        dies_at_commit: end in that transaction, after its statements and before its COMMIT; 0 never.
        yields_after: ask to stop once so many scans were classified; 0 never.
        poison: the scan that kills any process that begins to read it; b"" for none.
    """

    ledger_url: str
    store: Path
    tally: Path
    now: dt.datetime
    job_ids: tuple[str, ...]
    place: str = ""
    passage: int = 1
    sent: signal.Signals = signal.SIGKILL
    stalls_s: float = 0.0
    dies_at_commit: int = 0
    yields_after: int = 0
    poison: bytes = b""
    owner: str = "worker-a"
    limits: Limits = field(default_factory=Limits)


class _KillPlan:
    """The failure plan of a worker process."""

    def __init__(self, order: WorkerOrder) -> None:
        self._order = order
        self._passed = 0

    def reached(self, point_name: str) -> None:
        if point_name != self._order.place:
            return
        self._passed += 1
        if self._passed != self._order.passage:
            return
        if self._order.stalls_s:
            time.sleep(self._order.stalls_s)
        else:
            os.kill(os.getpid(), self._order.sent)

    def altered(self, alteration: str, value: Any) -> Any:
        return value


def start_worker(order: WorkerOrder) -> BaseProcess:
    process = fork_server.Process(target=_work, args=(order,))
    process.start()
    return process


def run_worker(order: WorkerOrder, *, within_s: float = 60.0) -> int | None:
    """Run a worker process to its end and return its exit code, negative for a signal."""
    process = start_worker(order)
    process.join(within_s)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError("the worker process did not end in time")
    return process.exitcode


def _work(order: WorkerOrder) -> None:
    install_plan(_KillPlan(order))
    ledger = open_ledger(order.ledger_url, clock=FakeClock(order.now))
    if order.dies_at_commit:
        _die_at_commit(ledger, order.dies_at_commit)
    chain = ScriptedChain(tally=order.tally, on_classify=lambda data: _die_on_poison(order, data))
    worker = Worker(
        ledger=ledger,
        objects=LocalObjectStore(order.store),
        chains=lambda pins: chain,
        limits=order.limits,
        owner=order.owner,
        stop_asked=lambda: 0 < order.yields_after <= len(chain.asked),
    )
    work_group(worker, wave_id="", job_ids=order.job_ids)
    ledger.close()


def _die_on_poison(order: WorkerOrder, data: bytes) -> None:
    if data == order.poison:
        os.kill(os.getpid(), signal.SIGKILL)


def _die_at_commit(ledger: Ledger, number: int) -> None:
    commits: list[int] = []

    def about_to_commit(connection: sa.Connection) -> None:
        commits.append(1)
        if len(commits) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(ledger.engine, "commit", about_to_commit)
