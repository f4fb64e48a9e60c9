"""The scheduler of a simulation: actors are threads, and exactly one of them runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class SimulatedCrash(BaseException):
    """Ends an actor as SIGKILL ends a process: nothing catches it and nothing is cleaned up."""


def _taken_lock() -> threading.Lock:
    """Return a lock to wait on: one thread acquires it as soon as another has released it.

    It does what a semaphore of one does, at a fraction of its cost.
    """
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class Actor:
    """One process of the simulated instance: it runs one task after another until it crashes or is stopped.

    Attributes:
        task: runs the actor's next task; returns when it is done or there is none.
        life: counts the actor's lives; a crash ends one and begins the next.
        pauses: how often it may still pause before another actor runs.
        wakes_at: simulated seconds until which it sleeps, None while it runs.
        silent: whether its heartbeat stops too.
        heartbeat: its heartbeat while a group is in work, and when the next heartbeat is due.
        crashing: it crashes as soon as it runs again.
        failing: it meets an error as soon as it runs again.
        busy: it is inside a task.
    """

    name: str
    task: Callable[[Actor], None]
    life: int = 1
    pauses: int = 0
    wakes_at: float | None = None
    silent: bool = False
    heartbeat: Callable[[], None] | None = None
    heartbeat_due_s: float = 0.0
    crashing: bool = False
    failing: bool = False
    busy: bool = False
    go: threading.Lock = field(default_factory=_taken_lock)

    @property
    def role(self) -> str:
        """Return what kind of process it is."""
        return self.name.partition("-")[0]

    @property
    def owner(self) -> str:
        """Return the name of this life, as leases know it."""
        return f"{self.name}.{self.life}"


class Scheduler:
    """Lets one actor run at a time, so that a run is a sequence.

    Args:
        on_error: called with what a task raised, SimulatedCrash included.
    """

    def __init__(self, on_error: Callable[[Actor, BaseException], None]) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self._on_error = on_error
        self._back = _taken_lock()
        self._over = False
        self._threads: list[threading.Thread] = []

    def add(self, actor: Actor) -> None:
        """Add an actor; it runs when `resume` selects it."""
        thread = threading.Thread(target=self._live, args=(actor,), name=actor.name, daemon=True)
        self.actors.append(actor)
        self._threads.append(thread)
        thread.start()

    def resume(self, actor: Actor, *, pauses: int) -> None:
        """Let the actor run until it has paused this often, sleeps, or has finished its task."""
        actor.pauses = pauses
        self._run(actor)

    def pause(self) -> None:
        """Mark that another actor may run now; called by the actor that runs."""
        actor = self.current
        assert actor is not None, "only an actor pauses"
        actor.pauses -= 1
        if not actor.crashing and (actor.pauses <= 0 or actor.wakes_at is not None):
            self._back.release()
            actor.go.acquire()
        if actor.crashing:
            raise SimulatedCrash

    def end(self) -> None:
        """End every actor."""
        self._over = True
        for actor in self.actors:
            actor.crashing = True
            self._run(actor)
        for thread in self._threads:
            thread.join()

    def _run(self, actor: Actor) -> None:
        self.current = actor
        actor.go.release()
        self._back.acquire()
        self.current = None

    def _live(self, actor: Actor) -> None:
        actor.go.acquire()
        while self._is_running():
            actor.busy = True
            try:
                actor.task(actor)
            except BaseException as error:
                self._on_error(actor, error)
            actor.busy = False
            if self._is_running():
                self._back.release()
                actor.go.acquire()
        self._back.release()

    def _is_running(self) -> bool:
        return not self._over
