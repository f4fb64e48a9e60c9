"""One simulated house: the real services over ledger, store, channel and clock in memory, and its dice."""

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
from receipt_pipeline.effects.context import EffectServices
from receipt_pipeline.intake.context import Intake
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND
from receipt_pipeline.reconciliation.context import Reconciler
from receipt_pipeline.worker.context import Worker
from receipt_pipeline_tests.chaos.simulator.fakes import MemoryChannel, MemoryObjects, VirtualClock
from receipt_pipeline_tests.chaos.simulator.faults import Dice, Mishap, Place
from receipt_pipeline_tests.chaos.simulator.ledger import LedgerBench
from receipt_pipeline_tests.chaos.simulator.scheduler import Actor, Baton, SimulatedCrash
from receipt_pipeline_tests.chaos.simulator.script import (
    CALLER,
    LIMITS,
    SimulatedChain,
    WantedJob,
    wanted_jobs,
)

NOWHERE = Path("simulated")
JUMPS_S = (8, 31, 31, 65, 130, 400)
SLEEPS_S = (10.0, 200.0)
WHOLE_TASK = 1_000
# Where a worker holds what it has not written yet.
BRINKS = frozenset(
    f"{boundary}.before" for boundary in ("checkpoint", "intent", "upload", "read_back", "commit", "yield")
)
TAKEOVER_STRIDES_MAX = 60
TAKEOVER_TRIES_MAX = 3
# Workers run oftener than those whose passes are short.
SHARES = {"worker": 4}
OUTWARD = frozenset({Place.PUT, Place.LOOK, Place.SEND})
BEAT_S = LIMITS.work.heartbeat_s


class World:
    """Everything of one seed. It is also the failure plan that is installed while its actors run.

    Attributes:
        tale: what happened, in order, one line each.
        faults: what no run may ever show: unexpected errors, outside calls inside a transaction.
        acting: on whose account the ledger is written to at this moment.
        answers: the job ids that callers were told, by tenant and key.
        robbed: workers that stand still while another is to take their job over, and which job.
        coveted: the job that the next worker who begins a wave is to take, where one is launched for it.
        launches: waves whose run was launched and that no worker has taken yet.
        launched: run keys that were used.
    """

    def __init__(self, bench: LedgerBench, *, seed: int, dice: Dice) -> None:
        self.bench = bench
        self.seed = seed
        self.dice = dice
        self.drawn = random.Random(f"schedule {seed}")
        self.clock = VirtualClock()
        self.tale: list[str] = []
        self.faults: list[str] = []
        self.acting = "setup"
        bench.acting = lambda: self.acting
        bench.micros = lambda: (self.clock.now() - EPOCH) // MICROSECOND
        self.ledger = bench.fresh(self.clock, seed=seed)
        self.ledger.outside = self.outside
        self.objects = MemoryObjects(self.clock, self.outside, bench.changes_so_far, lambda: self.acting)
        self.channel = MemoryChannel(self.outside)
        self.chain = SimulatedChain()
        self.baton = Baton(self._ended)
        self.wanted: list[WantedJob] = wanted_jobs(seed)
        self.orders: list[tuple[float, Callable[[], None]]] = []
        self.answers: dict[tuple[str, str], set[str]] = {}
        self.canceled: set[str] = set()
        self.launches: list[str] = []
        self.robbed: list[tuple[Actor, str]] = []
        self.launched: set[str] = set()
        self.coveted = ""
        self._shares_up_to: list[int] = []

    @property
    def effects(self) -> EffectServices:
        """Return what delivering and consuming work with."""
        return EffectServices(self.ledger, self.objects, self.channel, NOWHERE, LIMITS)

    @property
    def reconciler(self) -> Reconciler:
        """Return what reconciliation works with."""
        return Reconciler(self.ledger, self.objects, LIMITS)

    @property
    def intake(self) -> Intake:
        """Return what acceptance works with."""
        return Intake(self.ledger, self.objects, LIMITS, NOWHERE, lambda tenant, job_id: f"{tenant}/{job_id}")

    @staticmethod
    def principal(tenant: str) -> Principal:
        """Return the caller of a tenant."""
        return Principal(tenant, CALLER, frozenset(Role))

    def worker(self, owner: str, actor: Actor | None = None) -> Worker:
        """Return a worker of that name; its own clock runs by the simulated one, a little fast or slow."""
        drift = 0.7 + 0.1 * (sum(owner.encode()) % 7)

        def end_process() -> None:
            self.tell(f"{owner}: the watchdog ends the process")
            if actor is not None:
                actor.doomed = True

        return Worker(
            ledger=self.ledger,
            objects=self.objects,
            chains=lambda pins: self.chain,
            limits=LIMITS,
            owner=owner,
            run_id=owner,
            monotonic=lambda: self.clock.seconds * drift,
            end_process=end_process,
            start_beating=lambda beat: self._let_beat(actor, beat),
        )

    def _let_beat(self, actor: Actor | None, beat: Callable[[], None]) -> Callable[[], None]:
        if actor is None:
            return lambda: None
        actor.beat, actor.beats_at = beat, self.clock.seconds + BEAT_S

        def stop() -> None:
            actor.beat = None

        return stop

    def tell(self, line: str) -> None:
        """Add a line to the tale."""
        self.tale.append(f"{self.clock.seconds:8.1f} s  {line}")

    @contextmanager
    def acting_as(self, name: str) -> Iterator[None]:
        """Let the simulation itself act under a name, outside of every actor."""
        before, self.acting = self.acting, name
        try:
            yield
        except SimulatedCrash:
            self.tell(f"{name}: crashes")
        except PipelineError as error:
            self.tell(f"{name}: {error.reason.code}")
        except Exception as error:
            self.fault(name, error)
        finally:
            self.acting = before

    # What goes wrong.

    def outside(self, place: Place, what: str) -> Mishap | None:
        """Let something go wrong with what an actor is about to do, and others run first."""
        if self.ledger.inside and place in OUTWARD:
            self.faults.append(f"no_outside_call_in_a_transaction: {what}")
        actor = self.baton.current
        if actor is None:
            return None
        mishap = self.dice.decide(self.dice.place_of(place, what))
        if mishap is not None:
            self._befall(actor, mishap, what)
        if not self.ledger.inside:
            self.clock.advance(self.drawn.random() * 0.4)
            self.baton.pause()
        if actor.failing:
            actor.failing = False
            return Mishap.ERROR
        return mishap

    def reached(self, point_name: str) -> None:
        """Act at a failure point; inside a transaction only a crash can come."""
        if self.ledger.inside:
            return
        place = Place.BRINK if point_name in BRINKS else Place.POINT
        if self.outside(place, point_name) is Mishap.ERROR:
            raise DrillFault(DRILL_FAILED_HERE, failure_point=point_name)

    def altered(self, alteration: str, value: Any) -> Any:
        """Change the model's output where the dice say so."""
        actor = self.baton.current
        if actor is None or alteration != "model.change_output":
            return value
        if self.dice.decide(Place.MODEL) is None:
            return value
        self.tell(f"{actor.owner}: the model gives another output")
        return value.altered_for_drill()

    def _befall(self, actor: Actor, mishap: Mishap, what: str) -> None:
        self.tell(f"{actor.owner}: {mishap.value} at {what}")
        if mishap is Mishap.CRASH:
            raise SimulatedCrash
        held = self._held_by(actor) if mishap is Mishap.THEFT else None
        if held is not None and not self.ledger.inside:
            actor.wakes_at, actor.silent = math.inf, True
            self.robbed.append((actor, held))
        if mishap in (Mishap.HANG, Mishap.STALL):
            actor.wakes_at = self.clock.seconds + self.drawn.uniform(*SLEEPS_S)
            actor.silent = mishap is Mishap.HANG
        if mishap is Mishap.TIME_JUMPS:
            self.clock.advance(self.drawn.choice(JUMPS_S))
        if mishap is Mishap.CLOCK_BACK:
            self.clock.advance(-self.drawn.uniform(1, 40))

    def _ended(self, actor: Actor, error: BaseException) -> None:
        """Take in what ended a task: crashes and expected failures are part of life."""
        if isinstance(error, SimulatedCrash):
            self.tell(f"{actor.owner}: crashes")
            actor.life += 1
            actor.doomed, actor.failing, actor.wakes_at = False, False, None
            actor.silent, actor.beat = False, None
        elif isinstance(error, PipelineError) and not self._carries_defect(error):
            self.tell(f"{actor.owner}: gives up with {error.reason.code}")
        else:
            self.fault(actor.owner, error)

    @staticmethod
    def _carries_defect(error: BaseException) -> bool:
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("also: ")]
        return any("Error(" in note for note in notes)

    def fault(self, name: str, error: BaseException) -> None:
        """Keep an error that no service may raise."""
        told = f"services_raise_only_expected_errors: {name}: {error!r}"
        self.faults.append(told)
        self.tell(told)

    # Who runs next.

    def step(self) -> None:
        """Let one actor run for some strides, after the heartbeats that are due."""
        self._beat_hearts()
        while self.robbed:
            self._rob(*self.robbed.pop())
        actor = self.drawn.choices(self.baton.actors, cum_weights=self._shares())[0]
        if not self._awake(actor):
            self.clock.advance(0.5)
            return
        self.run(actor, strides=self.drawn.choice((1, 1, 2, 3, 5, 9, 20)))

    def _shares(self) -> list[int]:
        """Return up to which number of all shares each actor's reach; nobody joins once the house lives."""
        if len(self._shares_up_to) != len(self.baton.actors):
            self._shares_up_to = list(itertools.accumulate(SHARES.get(a.role, 1) for a in self.baton.actors))
        return self._shares_up_to

    def _held_by(self, actor: Actor) -> str | None:
        query = "SELECT job_id FROM jobs WHERE lease_owner = ?"
        row = self.bench.connection.execute(query, (actor.owner,)).fetchone()
        return None if row is None else str(row[0])

    def _rob(self, victim: Actor, job_id: str) -> None:
        """Let the victim's lease run out, another worker get as far as the dice say, then the victim wake."""
        self.clock.advance(LIMITS.work.lease_ttl_s + self.drawn.uniform(0, 3))
        self._run_idle("reconciler", strides=WHOLE_TASK)
        for _ in range(TAKEOVER_TRIES_MAX):
            self.clock.advance(self.drawn.uniform(2, 12))
            self._run_idle("dispatcher", strides=WHOLE_TASK)
            self.coveted = job_id
            thief = self._run_idle("worker", strides=1)
            for _ in range(TAKEOVER_STRIDES_MAX):
                if thief is None or thief.wakes_at is not None or self._held_by(thief) == job_id:
                    break
                self.run(thief, strides=1)
            if thief is not None and self._held_by(thief) == job_id:
                break
        if thief is not None and thief.wakes_at is None:
            self.run(thief, strides=self.drawn.choice((1, 2, 4, 8, 16, 32)))
        self.wake(victim)
        victim.failing = self.drawn.random() < 0.2
        if victim.beat is not None and self.drawn.random() < 0.4:
            self._beat(victim)
        self.run(victim, strides=self.drawn.randint(1, 25))

    def _run_idle(self, role: str, *, strides: int) -> Actor | None:
        idle = [actor for actor in self.baton.actors if actor.role == role and not actor.busy]
        if not idle:
            return None
        actor = self.drawn.choice(idle)
        actor.beats_at = -math.inf
        self.run(actor, strides=strides)
        return actor

    def run(self, actor: Actor, *, strides: int) -> None:
        """Hand the baton to an actor that is awake."""
        self.acting = actor.owner
        self.baton.hand_to(actor, strides=strides)
        self.acting = "nobody"

    def wake(self, actor: Actor) -> None:
        """Let a sleeping actor go on where it stood."""
        if actor.wakes_at is not None:
            self.tell(f"{actor.owner}: wakes")
        actor.wakes_at, actor.silent = None, False

    def _awake(self, actor: Actor) -> bool:
        if actor.wakes_at is not None and actor.wakes_at <= self.clock.seconds:
            self.wake(actor)
        return actor.wakes_at is None

    def _beat_hearts(self) -> None:
        for actor in self.baton.actors:
            if actor.beat is not None and not actor.silent and actor.beats_at <= self.clock.seconds:
                self._beat(actor)

    def _beat(self, actor: Actor) -> None:
        assert actor.beat is not None, actor.name
        actor.beats_at = self.clock.seconds + BEAT_S
        self.acting = actor.owner
        actor.beat()
        self.acting = "nobody"
