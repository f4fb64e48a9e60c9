"""The faults of a simulation: where they may occur, how likely each is, and what a seed decides."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What can go wrong."""

    CRASH = "crash"
    HANG = "hang"
    STALL = "stall"
    LEASE_THEFT = "theft"
    ERROR = "error"
    TIME_JUMPS = "time_jumps"
    CLOCK_BACK = "clock_back"
    UNAVAILABLE = "away"
    ANSWER_LOST = "answer_lost"
    REFUSED = "refused"
    PARTIAL_WRITE = "torn"
    PARTIAL_WRITE_CRASH = "torn_crash"
    GARBLED = "garbled"
    UNREADABLE = "blind"
    LOST = "lost"
    DOUBLED = "doubled"
    CHANGED = "changed"
    CORRUPTION = "rot"
    RESUBMIT = "resubmit"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"


class Place(StrEnum):
    """Where a decision is made."""

    POINT = "point"
    PENDING_WRITE = "brink"
    OPEN = "open"
    WRITTEN = "written"
    PUT = "put"
    LOOK = "look"
    SEND = "send"
    LAUNCH = "launch"
    MODEL = "model"
    INTERVENTION = "aside"
    AIM = "aim"


# What may happen at each place, and the highest probability that a seed may give it.
FAULTS_AT: Mapping[Place, Mapping[Fault, float]] = {
    Place.POINT: {
        Fault.LEASE_THEFT: 0.22,
        Fault.CRASH: 0.08,
        Fault.HANG: 0.04,
        Fault.STALL: 0.04,
        Fault.ERROR: 0.05,
        Fault.TIME_JUMPS: 0.03,
        Fault.CLOCK_BACK: 0.03,
    },
    Place.PENDING_WRITE: {Fault.LEASE_THEFT: 0.6, Fault.CRASH: 0.15, Fault.HANG: 0.05, Fault.ERROR: 0.05},
    Place.OPEN: {
        Fault.LEASE_THEFT: 0.08,
        Fault.CRASH: 0.02,
        Fault.HANG: 0.02,
        Fault.UNAVAILABLE: 0.03,
        Fault.TIME_JUMPS: 0.02,
    },
    Place.WRITTEN: {Fault.CRASH: 0.04, Fault.ANSWER_LOST: 0.04},
    Place.PUT: {
        Fault.REFUSED: 0.15,
        Fault.ANSWER_LOST: 0.2,
        Fault.PARTIAL_WRITE: 0.1,
        Fault.PARTIAL_WRITE_CRASH: 0.1,
        Fault.GARBLED: 0.1,
        Fault.CRASH: 0.1,
        Fault.LEASE_THEFT: 0.3,
    },
    Place.LOOK: {Fault.LEASE_THEFT: 0.1, Fault.UNREADABLE: 0.2, Fault.HANG: 0.1, Fault.CRASH: 0.05},
    Place.SEND: {Fault.REFUSED: 0.25, Fault.LOST: 0.25, Fault.DOUBLED: 0.2, Fault.ANSWER_LOST: 0.2, Fault.CRASH: 0.1},
    Place.LAUNCH: {Fault.LOST: 0.15, Fault.DOUBLED: 0.5},
    Place.MODEL: {Fault.CHANGED: 0.15},
    Place.INTERVENTION: {
        Fault.CORRUPTION: 0.15,
        Fault.RESUBMIT: 0.2,
        Fault.CANCEL: 0.12,
        Fault.SUPERSEDE: 0.08,
        Fault.TIME_JUMPS: 0.2,
    },
}
# A seed omits some kinds altogether, so that the others meet longer executions.
OMITTED_SHARE = 0.35
_STOLEN_THERE: Mapping[Fault, float] = {Fault.LEASE_THEFT: 0.75, Fault.CRASH: 0.05, Fault.HANG: 0.05}
# Most seeds aim at one moment, named as in the log: faults are frequent there and rare elsewhere, so that
# enough work gets that far.
AIMS: tuple[tuple[str, Mapping[Fault, float]], ...] = (
    ("checkpoint.before", _STOLEN_THERE),
    ("intent.before", _STOLEN_THERE),
    ("upload.before", _STOLEN_THERE),
    ("read_back.before", _STOLEN_THERE),
    ("commit.before", _STOLEN_THERE),
    ("commit.before", _STOLEN_THERE),  # Twice: little of the work that begins gets that far.
    ("model.before", _STOLEN_THERE),
    (
        "put results/",
        {Fault.GARBLED: 0.5, Fault.PARTIAL_WRITE: 0.15, Fault.PARTIAL_WRITE_CRASH: 0.15, Fault.ANSWER_LOST: 0.15},
    ),
    ("", {}),
)
UNAIMED = (Place.POINT, Place.PENDING_WRITE, Place.OPEN, Place.WRITTEN, Place.PUT)
UNAIMED_FACTOR = 0.3


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision for a fault: its number in the seed, place and kind."""

    number: int
    place: Place
    fault: Fault


@dataclass(slots=True)
class FaultSource:
    """Decides from a seed; the same seed and the same run make the same decisions.

    Attributes:
        disabled: numbers of decisions without a fault, for a shorter log of the same seed.
        calm: no fault occurs and no decision is counted.
        ordered: the fault of the next decision at a place, instead of the seed's.
        aim: how the name of the moment begins at which this seed aims; "" for none.
    """

    seed: int
    disabled: frozenset[int] = frozenset()
    calm: bool = False
    decisions: int = 0
    made: list[Decision] = field(default_factory=list)
    ordered: dict[Place, Fault] = field(default_factory=dict)
    aim: str = field(init=False)
    _random: random.Random = field(init=False)
    _chances: dict[Place, list[tuple[Fault, float]]] = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"dice {self.seed}")
        self._chances = {
            place: [
                (fault, 0.0 if self._random.random() < OMITTED_SHARE else most * self._random.random())
                for fault, most in kinds.items()
            ]
            for place, kinds in FAULTS_AT.items()
        }
        self.aim, aimed = AIMS[self._random.randrange(len(AIMS))]
        if self.aim:
            for place in UNAIMED:
                self._chances[place] = [(kind, chance * UNAIMED_FACTOR) for kind, chance in self._chances[place]]
        self._chances[Place.AIM] = list(aimed.items())

    def place_of(self, place: Place, what: str) -> Place:
        """Return the place at which a moment counts: one that is aimed at is a place of its own."""
        return Place.AIM if self.aim and what.startswith(self.aim) else place

    def decide(self, place: Place) -> Fault | None:
        """Decide whether a fault occurs here, and which."""
        if self.calm and place not in self.ordered:
            return None
        number = self.decisions
        self.decisions += 1
        fault = self.ordered.pop(place, None) or self._drawn(place)
        if fault is None or number in self.disabled:
            return None
        self.made.append(Decision(number, place, fault))
        return fault

    def _drawn(self, place: Place) -> Fault | None:
        drawn = self._random.random()
        for fault, chance in self._chances[place]:
            if drawn < chance:
                return fault
            drawn -= chance
        return None
