"""The dice of a simulation: every place at which something may go wrong, and what goes wrong there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mishap(StrEnum):
    """What can go wrong."""

    CRASH = "crash"
    HANG = "hang"
    STALL = "stall"
    THEFT = "theft"
    ERROR = "error"
    TIME_JUMPS = "time_jumps"
    CLOCK_BACK = "clock_back"
    AWAY = "away"
    ANSWER_LOST = "answer_lost"
    REFUSED = "refused"
    TORN = "torn"
    TORN_CRASH = "torn_crash"
    GARBLED = "garbled"
    BLIND = "blind"
    LOST = "lost"
    DOUBLED = "doubled"
    CHANGED = "changed"
    ROT = "rot"
    RESUBMIT = "resubmit"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"


class Place(StrEnum):
    """Where a decision is made."""

    POINT = "point"
    BRINK = "brink"
    OPEN = "open"
    WRITTEN = "written"
    PUT = "put"
    LOOK = "look"
    SEND = "send"
    LAUNCH = "launch"
    MODEL = "model"
    ASIDE = "aside"
    AIM = "aim"


# What may happen at each place, and the greatest chance that a seed may give it.
MISHAPS: Mapping[Place, Mapping[Mishap, float]] = {
    Place.POINT: {
        Mishap.THEFT: 0.22,
        Mishap.CRASH: 0.08,
        Mishap.HANG: 0.04,
        Mishap.STALL: 0.04,
        Mishap.ERROR: 0.05,
        Mishap.TIME_JUMPS: 0.03,
        Mishap.CLOCK_BACK: 0.03,
    },
    Place.BRINK: {
        Mishap.THEFT: 0.6,
        Mishap.CRASH: 0.15,
        Mishap.HANG: 0.05,
        Mishap.ERROR: 0.05,
    },
    Place.OPEN: {
        Mishap.THEFT: 0.08,
        Mishap.CRASH: 0.02,
        Mishap.HANG: 0.02,
        Mishap.AWAY: 0.03,
        Mishap.TIME_JUMPS: 0.02,
    },
    Place.WRITTEN: {Mishap.CRASH: 0.04, Mishap.ANSWER_LOST: 0.04},
    Place.PUT: {
        Mishap.REFUSED: 0.15,
        Mishap.ANSWER_LOST: 0.2,
        Mishap.TORN: 0.1,
        Mishap.TORN_CRASH: 0.1,
        Mishap.GARBLED: 0.1,
        Mishap.CRASH: 0.1,
        Mishap.THEFT: 0.3,
    },
    Place.LOOK: {Mishap.THEFT: 0.1, Mishap.BLIND: 0.2, Mishap.HANG: 0.1, Mishap.CRASH: 0.05},
    Place.SEND: {
        Mishap.REFUSED: 0.25,
        Mishap.LOST: 0.25,
        Mishap.DOUBLED: 0.2,
        Mishap.ANSWER_LOST: 0.2,
        Mishap.CRASH: 0.1,
    },
    Place.LAUNCH: {Mishap.LOST: 0.15, Mishap.DOUBLED: 0.5},
    Place.MODEL: {Mishap.CHANGED: 0.15},
    Place.ASIDE: {
        Mishap.ROT: 0.15,
        Mishap.RESUBMIT: 0.2,
        Mishap.CANCEL: 0.12,
        Mishap.SUPERSEDE: 0.08,
        Mishap.TIME_JUMPS: 0.2,
    },
}
# A seed leaves some kinds out altogether, so that the others come to act on longer lives.
LEFT_OUT = 0.35
_TAKEN_THERE: Mapping[Mishap, float] = {Mishap.THEFT: 0.75, Mishap.CRASH: 0.05, Mishap.HANG: 0.05}
# Most seeds aim at one moment, named as the tale names it: there things go wrong nearly every time, and
# seldom elsewhere, so that enough work gets that far.
AIMS: tuple[tuple[str, Mapping[Mishap, float]], ...] = (
    ("checkpoint.before", _TAKEN_THERE),
    ("intent.before", _TAKEN_THERE),
    ("upload.before", _TAKEN_THERE),
    ("read_back.before", _TAKEN_THERE),
    ("commit.before", _TAKEN_THERE),
    ("commit.before", _TAKEN_THERE),  # Twice: of the work that begins, the least gets that far.
    ("model.before", _TAKEN_THERE),
    (
        "put results/",
        {Mishap.GARBLED: 0.5, Mishap.TORN: 0.15, Mishap.TORN_CRASH: 0.15, Mishap.ANSWER_LOST: 0.15},
    ),
    ("", {}),
)
UNAIMED = (Place.POINT, Place.BRINK, Place.OPEN, Place.WRITTEN, Place.PUT)
SELDOM = 0.3


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision that let something go wrong: its number in the seed, place and kind."""

    number: int
    place: Place
    mishap: Mishap


@dataclass(slots=True)
class Dice:
    """Decides from a seed; the same seed and the same run make the same decisions.

    Attributes:
        disabled: numbers of decisions that let nothing go wrong, for a smaller story of the same seed.
        calm: nothing goes wrong any more, and nothing is counted.
        ordered: what goes wrong at the next decision of a place, instead of what the seed says.
        aim: with what the moment begins at which this seed aims; "" for a seed that aims at none.
    """

    seed: int
    disabled: frozenset[int] = frozenset()
    calm: bool = False
    decisions: int = 0
    made: list[Decision] = field(default_factory=list)
    ordered: dict[Place, Mishap] = field(default_factory=dict)
    aim: str = field(init=False)
    _random: random.Random = field(init=False)
    _chances: dict[Place, list[tuple[Mishap, float]]] = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"dice {self.seed}")
        self._chances = {
            place: [
                (mishap, 0.0 if self._random.random() < LEFT_OUT else most * self._random.random())
                for mishap, most in mishaps.items()
            ]
            for place, mishaps in MISHAPS.items()
        }
        self.aim, aimed = AIMS[self._random.randrange(len(AIMS))]
        if self.aim:
            for place in UNAIMED:
                self._chances[place] = [(kind, chance * SELDOM) for kind, chance in self._chances[place]]
        self._chances[Place.AIM] = list(aimed.items())

    def place_of(self, place: Place, what: str) -> Place:
        """Return the place at which a moment counts: one that is aimed at is a place of its own."""
        return Place.AIM if self.aim and what.startswith(self.aim) else place

    def decide(self, place: Place) -> Mishap | None:
        """Decide whether something goes wrong here, and what."""
        if self.calm and place not in self.ordered:
            return None
        number = self.decisions
        self.decisions += 1
        mishap = self.ordered.pop(place, None) or self._drawn(place)
        if mishap is None or number in self.disabled:
            return None
        self.made.append(Decision(number, place, mishap))
        return mishap

    def _drawn(self, place: Place) -> Mishap | None:
        drawn = self._random.random()
        for mishap, chance in self._chances[place]:
            if drawn < chance:
                return mishap
            drawn -= chance
        return None
