"""The baton of a simulation: actors are threads, and only the one that holds the baton runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class SimulatedCrash(BaseException):
    """Ends an actor where it stands, as SIGKILL ends a process: nothing catches it, nothing is tidied up."""


def _taken_lock() -> threading.Lock:
    """Return a lock to wait at: one thread acquires it as soon as another has released it.

    It does what a semaphore of one does, at a fraction of its cost.
    """
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class Actor:
    """One process of the simulated house: it does one task after another until it crashes or is stopped.

    Attributes:
        task: does the actor's next task; returns when it is done or there is none.
        life: counts the actor's lives; a crash ends one and begins the next.
        strides: how often it may still pause before the baton goes back.
        wakes_at: simulated seconds until which it stands still, None while it runs.
        silent: whether its heartbeat stands still with it.
        beat: its heartbeat while a group is in work, and when the next beat is due.
        doomed: it crashes as soon as it holds the baton again.
        failing: where it stands, an error comes as soon as it holds the baton again.
        busy: it is inside a task.
    """

    name: str
    task: Callable[[Actor], None]
    life: int = 1
    strides: int = 0
    wakes_at: float | None = None
    silent: bool = False
    beat: Callable[[], None] | None = None
    beats_at: float = 0.0
    doomed: bool = False
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


class Baton:
    """Hands the one right to run to one actor and takes it back, so that a run is a sequence.

    Args:
        on_error: is told what a task raised, SimulatedCrash included.
    """

    def __init__(self, on_error: Callable[[Actor, BaseException], None]) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self._on_error = on_error
        self._back = _taken_lock()
        self._over = False
        self._threads: list[threading.Thread] = []

    def add(self, actor: Actor) -> None:
        """Let an actor take part; it runs once it is handed the baton."""
        thread = threading.Thread(target=self._live, args=(actor,), name=actor.name, daemon=True)
        self.actors.append(actor)
        self._threads.append(thread)
        thread.start()

    def hand_to(self, actor: Actor, *, strides: int) -> None:
        """Let the actor run until it has paused so often, falls asleep or is through with its task."""
        actor.strides = strides
        self._run(actor)

    def pause(self) -> None:
        """Mark that another actor may run now; called by the actor that holds the baton."""
        actor = self.current
        assert actor is not None, "only an actor pauses"
        actor.strides -= 1
        if not actor.doomed and (actor.strides <= 0 or actor.wakes_at is not None):
            self._back.release()
            actor.go.acquire()
        if actor.doomed:
            raise SimulatedCrash

    def end(self) -> None:
        """End every actor where it stands."""
        self._over = True
        for actor in self.actors:
            actor.doomed = True
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
        while self._goes_on():
            actor.busy = True
            try:
                actor.task(actor)
            except BaseException as error:
                self._on_error(actor, error)
            actor.busy = False
            if self._goes_on():
                self._back.release()
                actor.go.acquire()
        self._back.release()

    def _goes_on(self) -> bool:
        return not self._over
