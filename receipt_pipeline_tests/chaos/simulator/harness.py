"""One simulated instance: the real services over ledger, store, channel and clock in memory, with faults."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import DRILL_FAILED_HERE
from receipt_pipeline.drill.failure_plan import DrillFault
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.worker.context import Worker
from receipt_pipeline_tests.chaos.simulator.fakes import MemoryChannel, MemoryObjects, VirtualClock
from receipt_pipeline_tests.chaos.simulator.faults import Fault, FaultSource, Place
from receipt_pipeline_tests.chaos.simulator.ledger import MemoryDatabase
from receipt_pipeline_tests.chaos.simulator.scheduler import Actor, Scheduler, SimulatedCrash
from receipt_pipeline_tests.chaos.simulator.script import CALLER, LIMITS, SimulatedChain, WantedJob, wanted_jobs

NOWHERE = Path("simulated")
JUMPS_S = (8, 31, 31, 65, 130, 400)
SLEEPS_S = (10.0, 200.0)
WHOLE_TASK = 1_000
# Where a worker holds a result that it has not written yet.
PENDING_WRITES = frozenset(
    f"{boundary}.before" for boundary in ("checkpoint", "intent", "upload", "read_back", "commit", "yield")
)
TAKEOVER_PAUSES_MAX = 60
TAKEOVER_ATTEMPTS_MAX = 3
# Workers run more often than the others, whose passes are short.
SHARES = {"worker": 4}
OUTWARD = frozenset({Place.PUT, Place.LOOK, Place.SEND})
HEARTBEAT_S = LIMITS.work.heartbeat_s


class Harness:
    """Everything of one seed. It is also the failure plan that is installed while its actors run.

    Attributes:
        log: what happened, in order, one line each.
        defects: what no run may show: unexpected errors, outside calls inside a transaction.
        acting: who writes to the ledger at this moment.
        answers: the job ids that callers received, by tenant and key.
        lease_victims: stopped workers whose job another one will claim, with that job.
        preferred_job: the job whose wave the next worker begins, if that wave was launched.
        launches: waves whose run was launched and that no worker has begun yet.
        launched: run keys that were used.
    """

    def __init__(self, database: MemoryDatabase, *, seed: int, faults: FaultSource) -> None:
        self.database = database
        self.seed = seed
        self.faults = faults
        self.drawn = random.Random(f"schedule {seed}")
        self.clock = VirtualClock()
        self.log: list[str] = []
        self.defects: list[str] = []
        self.acting = "setup"
        database.acting = lambda: self.acting
        database.micros = lambda: (self.clock.now() - EPOCH) // MICROSECOND
        self.ledger = database.fresh(self.clock, seed=seed)
        self.ledger.outside = self.outside
        self.objects = MemoryObjects(self.clock, self.outside, database.changes_so_far, lambda: self.acting)
        self.channel = MemoryChannel(self.outside)
        self.chain = SimulatedChain()
        self.scheduler = Scheduler(self._ended)
        self.wanted: list[WantedJob] = wanted_jobs(seed)
        self.orders: list[tuple[float, Callable[[], None]]] = []
        self.answers: dict[tuple[str, str], set[str]] = {}
        self.canceled: set[str] = set()
        self.launches: list[str] = []
        self.lease_victims: list[tuple[Actor, str]] = []
        self.launched: set[str] = set()
        self.preferred_job = ""
        self._shares_up_to: list[int] = []

    @property
    def effects(self) -> EffectContext:
        """Return the context of delivery and consumption."""
        return EffectContext(self.ledger, self.objects, self.channel, NOWHERE, LIMITS)

    @property
    def reconciler(self) -> ReconciliationContext:
        """Return the context of reconciliation."""
        return ReconciliationContext(self.ledger, self.objects, LIMITS)

    @property
    def intake(self) -> IntakeContext:
        """Return the context of acceptance."""
        return IntakeContext(self.ledger, self.objects, LIMITS, NOWHERE, lambda tenant, job_id: f"{tenant}/{job_id}")

    @staticmethod
    def principal(tenant: str) -> Principal:
        """Return the caller of a tenant."""
        return Principal(tenant, CALLER, frozenset(Role))

    def worker(self, owner: str, actor: Actor | None = None) -> Worker:
        """Return a worker of that name; its own clock follows the simulated one, slightly fast or slow."""
        drift = 0.7 + 0.1 * (sum(owner.encode()) % 7)

        def end_process() -> None:
            self.note(f"{owner}: the watchdog ends the process")
            if actor is not None:
                actor.crashing = True

        return Worker(
            ledger=self.ledger,
            objects=self.objects,
            chains=lambda pins: self.chain,
            limits=LIMITS,
            owner=owner,
            run_id=owner,
            monotonic=lambda: self.clock.seconds * drift,
            end_process=end_process,
            start_heartbeat=lambda heartbeat: self._start_heartbeat(actor, heartbeat),
        )

    def _start_heartbeat(self, actor: Actor | None, heartbeat: Callable[[], None]) -> Callable[[], None]:
        if actor is None:
            return lambda: None
        actor.heartbeat, actor.heartbeat_due_s = heartbeat, self.clock.seconds + HEARTBEAT_S

        def stop() -> None:
            actor.heartbeat = None

        return stop

    def note(self, line: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.clock.seconds:8.1f} s  {line}")

    @contextmanager
    def acting_as(self, name: str) -> Iterator[None]:
        """Let the simulation itself act under a name, outside every actor."""
        before, self.acting = self.acting, name
        try:
            yield
        except SimulatedCrash:
            self.note(f"{name}: crashes")
        except PipelineError as error:
            self.note(f"{name}: {error.reason.code}")
        except Exception as error:
            self.fault(name, error)
        finally:
            self.acting = before

    # What goes wrong.

    def outside(self, place: Place, what: str) -> Fault | None:
        """Apply a fault to what an actor is about to do, and let others run first."""
        if self.ledger.inside and place in OUTWARD:
            self.defects.append(f"no_external_call_in_a_transaction: {what}")
        actor = self.scheduler.current
        if actor is None:
            return None
        fault = self.faults.decide(self.faults.place_of(place, what))
        if fault is not None:
            self._apply(actor, fault, what)
        if not self.ledger.inside:
            self.clock.advance(self.drawn.random() * 0.4)
            self.scheduler.pause()
        if actor.failing:
            actor.failing = False
            return Fault.ERROR
        return fault

    def reached(self, point_name: str) -> None:
        """Act at a failure point; nothing happens inside a transaction."""
        if self.ledger.inside:
            return
        place = Place.PENDING_WRITE if point_name in PENDING_WRITES else Place.POINT
        if self.outside(place, point_name) is Fault.ERROR:
            raise DrillFault(DRILL_FAILED_HERE, failure_point=point_name)

    def altered(self, alteration: str, value: Any) -> Any:
        """Change the model's output where a fault is drawn."""
        actor = self.scheduler.current
        if actor is None or alteration != "model.change_output":
            return value
        if self.faults.decide(Place.MODEL) is None:
            return value
        self.note(f"{actor.owner}: the model gives another output")
        return value.altered_for_drill()

    def _apply(self, actor: Actor, fault: Fault, what: str) -> None:
        self.note(f"{actor.owner}: {fault.value} at {what}")
        if fault is Fault.CRASH:
            raise SimulatedCrash
        held = self._held_by(actor) if fault is Fault.LEASE_THEFT else None
        if held is not None and not self.ledger.inside:
            actor.wakes_at, actor.silent = math.inf, True
            self.lease_victims.append((actor, held))
        if fault in (Fault.HANG, Fault.STALL):
            actor.wakes_at = self.clock.seconds + self.drawn.uniform(*SLEEPS_S)
            actor.silent = fault is Fault.HANG
        if fault is Fault.TIME_JUMPS:
            self.clock.advance(self.drawn.choice(JUMPS_S))
        if fault is Fault.CLOCK_BACK:
            self.clock.advance(-self.drawn.uniform(1, 40))

    def _ended(self, actor: Actor, error: BaseException) -> None:
        """Handle the end of a task: crashes and expected failures are normal."""
        if isinstance(error, SimulatedCrash):
            self.note(f"{actor.owner}: crashes")
            actor.life += 1
            actor.crashing, actor.failing, actor.wakes_at = False, False, None
            actor.silent, actor.heartbeat = False, None
        elif isinstance(error, PipelineError) and not self._carries_defect(error):
            self.note(f"{actor.owner}: stops with {error.reason.code}")
        else:
            self.fault(actor.owner, error)

    @staticmethod
    def _carries_defect(error: BaseException) -> bool:
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("also: ")]
        return any("Error(" in note for note in notes)

    def fault(self, name: str, error: BaseException) -> None:
        """Record an error that no service may raise."""
        line = f"services_raise_only_expected_errors: {name}: {error!r}"
        self.defects.append(line)
        self.note(line)

    # Who runs next.

    def step(self) -> None:
        """Let one actor run for some pauses, after the heartbeats that are due."""
        self._send_due_heartbeats()
        while self.lease_victims:
            self._steal_lease(*self.lease_victims.pop())
        actor = self.drawn.choices(self.scheduler.actors, cum_weights=self._shares())[0]
        if not self._awake(actor):
            self.clock.advance(0.5)
            return
        self.run(actor, pauses=self.drawn.choice((1, 1, 2, 3, 5, 9, 20)))

    def _shares(self) -> list[int]:
        """Return up to which number of all shares each actor's reach; no actor joins later."""
        if len(self._shares_up_to) != len(self.scheduler.actors):
            self._shares_up_to = list(itertools.accumulate(SHARES.get(a.role, 1) for a in self.scheduler.actors))
        return self._shares_up_to

    def _held_by(self, actor: Actor) -> str | None:
        query = "SELECT job_id FROM jobs WHERE lease_owner = ?"
        row = self.database.connection.execute(query, (actor.owner,)).fetchone()
        return None if row is None else str(row[0])

    def _steal_lease(self, victim: Actor, job_id: str) -> None:
        """Let the victim's lease expire, another worker claim its job and work, then wake the victim."""
        self.clock.advance(LIMITS.work.lease_ttl_s + self.drawn.uniform(0, 3))
        self._run_idle("reconciler", pauses=WHOLE_TASK)
        for _ in range(TAKEOVER_ATTEMPTS_MAX):
            self.clock.advance(self.drawn.uniform(2, 12))
            self._run_idle("dispatcher", pauses=WHOLE_TASK)
            self.preferred_job = job_id
            successor = self._run_idle("worker", pauses=1)
            for _ in range(TAKEOVER_PAUSES_MAX):
                if successor is None or successor.wakes_at is not None or self._held_by(successor) == job_id:
                    break
                self.run(successor, pauses=1)
            if successor is not None and self._held_by(successor) == job_id:
                break
        if successor is not None and successor.wakes_at is None:
            self.run(successor, pauses=self.drawn.choice((1, 2, 4, 8, 16, 32)))
        self.wake(victim)
        victim.failing = self.drawn.random() < 0.2
        if victim.heartbeat is not None and self.drawn.random() < 0.4:
            self._send_heartbeat(victim)
        self.run(victim, pauses=self.drawn.randint(1, 25))

    def _run_idle(self, role: str, *, pauses: int) -> Actor | None:
        idle = [actor for actor in self.scheduler.actors if actor.role == role and not actor.busy]
        if not idle:
            return None
        actor = self.drawn.choice(idle)
        actor.heartbeat_due_s = -math.inf
        self.run(actor, pauses=pauses)
        return actor

    def run(self, actor: Actor, *, pauses: int) -> None:
        """Let an actor that is awake run."""
        self.acting = actor.owner
        self.scheduler.resume(actor, pauses=pauses)
        self.acting = "no one"

    def wake(self, actor: Actor) -> None:
        """Let a sleeping actor continue."""
        if actor.wakes_at is not None:
            self.note(f"{actor.owner}: wakes")
        actor.wakes_at, actor.silent = None, False

    def _awake(self, actor: Actor) -> bool:
        if actor.wakes_at is not None and actor.wakes_at <= self.clock.seconds:
            self.wake(actor)
        return actor.wakes_at is None

    def _send_due_heartbeats(self) -> None:
        for actor in self.scheduler.actors:
            if actor.heartbeat is not None and not actor.silent and actor.heartbeat_due_s <= self.clock.seconds:
                self._send_heartbeat(actor)

    def _send_heartbeat(self, actor: Actor) -> None:
        assert actor.heartbeat is not None, actor.name
        actor.heartbeat_due_s = self.clock.seconds + HEARTBEAT_S
        self.acting = actor.owner
        actor.heartbeat()
        self.acting = "no one"
