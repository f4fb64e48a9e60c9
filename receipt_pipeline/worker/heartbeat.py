"""Keeps a claim alive while work goes on: renews lease and wave, ends a process that stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.ledger.jobs.claim import renew_lease
from receipt_pipeline.ledger.jobs.waves import renew_wave
from receipt_pipeline.worker.context import Worker

_silenced = threading.Event()


def stop_all() -> None:
    """Silence every heartbeat and watchdog of this process, as a process that hangs would fall silent."""
    _silenced.set()


class Heartbeat:
    """Beats every `heartbeat_s` by absolute due times, in a thread, while a group of jobs is worked off.

    Liveness only: the lease epoch stays the authority. Without an item boundary, a page or a step of
    the publication for `item_timeout_s` it renews nothing any more and the watchdog ends the process,
    which counts as a loss of the begun item.

    Args:
        worker: whose leases are renewed.
        wave_id: the wave to keep alive, "" for none.
    """

    def __init__(self, worker: Worker, *, wave_id: str = "") -> None:
        self._worker = worker
        self._wave_id = wave_id
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stop_beating: Callable[[], None] = lambda: None
        self._at_work = False
        self._token: FencingToken | None = None
        self._progressed_at = worker.monotonic()
        self._refused = False
        self._wave_closed = False
        self._given_up = False

    def __enter__(self) -> Heartbeat:
        self.beat()
        start = self._worker.start_heartbeat or self._start_thread
        self._stop_beating = start(self.beat)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_beating()

    def _start_thread(self, beat: Callable[[], None]) -> Callable[[], None]:
        thread = threading.Thread(target=self._run, args=(beat,), name="heartbeat", daemon=True)
        thread.start()

        def stop() -> None:
            self._stopped.set()
            thread.join()

        return stop

    def take_up(self) -> None:
        """Watch the progress of a worker that is about to claim, so that it cannot stand still in between."""
        with self._lock:
            self._at_work = True
            self._progressed_at = self._worker.monotonic()

    def watch(self, token: FencingToken) -> None:
        """Renew this claim from now on, and watch its progress."""
        with self._lock:
            self._at_work = True
            self._token = token
            self._refused = False
            self._progressed_at = self._worker.monotonic()

    def let_go(self) -> None:
        """Renew and watch nothing until the next claim."""
        with self._lock:
            self._at_work = False
            self._token = None

    def progressed(self) -> None:
        """Note an item boundary, a page that was read, or a step of the publication."""
        with self._lock:
            self._progressed_at = self._worker.monotonic()

    @property
    def refused(self) -> bool:
        """Return whether a renewal of the watched claim was refused: a later epoch holds the job."""
        with self._lock:
            return self._refused

    @property
    def wave_closed(self) -> bool:
        """Return whether the wave was closed meanwhile, so that its run should end."""
        with self._lock:
            return self._wave_closed

    def beat(self) -> None:
        """Beat once: renew the lease and the wave in one transaction, or end the process."""
        if _silenced.is_set() or self._given_up:
            return
        with self._lock:
            token, at_work = self._token, self._at_work
            silent_s = self._worker.monotonic() - self._progressed_at
        if at_work and silent_s >= self._worker.limits.work.item_timeout_s:
            self._given_up = True
            self._worker.end_process()
            return
        if token is None and not self._wave_id:
            return
        try:
            self._renew(token)
        except LedgerUnavailable:
            return  # The next beat tries again; if none gets through, the lease runs out as it should.

    def _renew(self, token: FencingToken | None) -> None:
        with self._worker.ledger.transaction() as tx:
            renewed = token is None or renew_lease(tx, token, lease_ttl_s=self._worker.limits.work.lease_ttl_s)
            wave_open = not self._wave_id or renew_wave(tx, self._wave_id, run_id=self._worker.run_id)
        with self._lock:
            # The worker may have let go while the transaction ran; then the answer is about an old claim.
            if not renewed and self._token == token:
                self._refused = True
            self._wave_closed = self._wave_closed or not wave_open

    def _run(self, beat: Callable[[], None]) -> None:
        period_s = self._worker.limits.work.heartbeat_s
        due = self._worker.monotonic() + period_s
        while not self._stopped.wait(max(0.0, due - self._worker.monotonic())):
            beat()
            due = max(due + period_s, self._worker.monotonic())
