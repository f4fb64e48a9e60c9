"""The letters of a line with what else the reader held possible, and the words that decide between them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLANK = 0
# A letter that is surer than this has no alternatives; another letter needs at least so much to be one.
LETTER_SURE = 0.99
OTHER_LETTER_MIN = 0.005
# A blank that is surer than this hides no letter.
BLANK_SURE = 0.9
ALTERNATIVES_MAX = 3
# A letter or a blank that was not read at all needs more support than another letter for one that was read.
INSERTED_MIN = 0.1
SPACE_MIN = 0.2
CHANGES_MAX = 3
TRIALS_MAX = 600
KNOWN_LENGTH_MIN = 3
_EDGE = re.compile(r"^[^A-Z0-9]+|[^A-Z0-9]+$")


def _read_known_words() -> frozenset[str]:
    """Return the words of `known_words.txt`, in capitals; lines that begin with `#` are headings."""
    lines = Path(__file__).with_name("known_words.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


KNOWN_WORDS = _read_known_words()


@dataclass(frozen=True, slots=True)
class Letter:
    """One place of a line: the letter as read, empty where none was, and what else it may be."""

    text: str
    probability: float
    others: tuple[tuple[str, float], ...] = ()


def letters_of(
    probabilities: NDArray[np.float32],
    characters: Sequence[str],
    *,
    sure: float = LETTER_SURE,
    other_min: float = OTHER_LETTER_MIN,
) -> list[Letter]:
    """Return the letters of one line in order.

    Args:
        probabilities: (columns, characters) of the recognition model; character 0 is its blank.
        characters: the text of each character of the model.
        sure: the probability from which a letter has no alternatives.
        other_min: the probability from which another letter is one.
    Source: greedy decoding of a connectionist temporal classification, with its runners-up kept.
    """
    best = probabilities.argmax(axis=1)
    chances = probabilities[np.arange(len(best)), best]
    letters: list[Letter] = []
    for begin, end in _runs(best):
        kind = int(best[begin])
        surest = begin + int(chances[begin:end].argmax())
        if kind != BLANK:
            doubtful = chances[surest] < sure
            others = _others(probabilities[surest], kind, characters, other_min) if doubtful else ()
            letters.append(Letter(characters[kind], float(chances[begin]), others))
            continue
        neighbors = {int(best[at]) for at in (begin - 1, end) if 0 <= at < len(best)}
        letters.extend(_unread(probabilities[begin:end], chances[begin:end], neighbors, characters))
    return letters


def _runs(best: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    edges = [0, *(np.flatnonzero(best[1:] != best[:-1]) + 1).tolist(), len(best)]
    for begin, end in pairwise(edges):
        if end > begin:
            yield begin, end


def _others(
    column: NDArray[np.float32], kind: int, characters: Sequence[str], other_min: float
) -> tuple[tuple[str, float], ...]:
    """Return the runners-up of one column, likeliest first; the blank is the empty text."""
    rest = column.copy()
    found = []
    for _ in range(ALTERNATIVES_MAX):
        rest[kind] = 0.0
        kind = int(rest.argmax())
        if rest[kind] < other_min:
            break
        found.append(("" if kind == BLANK else characters[kind], float(rest[kind])))
    return tuple(found)


def _unread(
    columns: NDArray[np.float32], chances: NDArray[np.float32], neighbors: set[int], characters: Sequence[str]
) -> Iterator[Letter]:
    """Yield a place for what a stretch of blanks may hide: one letter, or one space, or nothing."""
    doubtful = np.flatnonzero(chances < BLANK_SURE)
    if len(doubtful) == 0:
        return
    hidden = columns[doubtful].copy()
    hidden[:, [BLANK, *neighbors]] = 0.0
    at, kind = np.unravel_index(int(hidden.argmax()), hidden.shape)
    chance = float(hidden[at, kind])
    if chance >= INSERTED_MIN:
        yield Letter("", 1.0 - chance, ((characters[int(kind)], chance),))


def mean_probability(letters: Sequence[Letter]) -> float:
    """Return how sure the reader is of a line: the mean over the letters that it read, 0 without any."""
    read = [letter.probability for letter in letters if letter.text]
    return sum(read) / len(read) if read else 0.0


def weighed_text(letters: Sequence[Letter]) -> str:
    """Return the line's text; a doubtful word becomes a known one where the reader held that possible."""
    words: list[str] = []
    word: list[Letter] = []
    for letter in letters:
        if letter.text == " ":
            words.append(_weighed_word(word))
            word = []
        else:
            word.append(letter)
    words.append(_weighed_word(word))
    return " ".join(" ".join(words).split())


def _weighed_word(word: Sequence[Letter]) -> str:
    as_read = "".join(letter.text for letter in word)
    doubtful = [place for place, letter in enumerate(word) if letter.others]
    if not doubtful or is_known(as_read):
        return as_read
    best_text, best_chance = as_read, 0.0
    trials = 0
    for changes in range(1, min(CHANGES_MAX, len(doubtful)) + 1):
        for places in combinations(doubtful, changes):
            for choice in product(*(word[place].others for place in places)):
                trials += 1
                if trials > TRIALS_MAX:
                    return best_text
                text, chance = _tried(word, dict(zip(places, choice, strict=True)))
                if chance > best_chance and _improves(text, as_read, choice):
                    best_text, best_chance = text, chance
    return best_text


def _tried(word: Sequence[Letter], changed: dict[int, tuple[str, float]]) -> tuple[str, float]:
    """Return the word with some places changed, and how likely that is against the word as read."""
    chance = 1.0
    for place, (_text, probability) in changed.items():
        chance *= probability / max(word[place].probability, 1e-6)
    return "".join(changed[place][0] if place in changed else letter.text for place, letter in enumerate(word)), chance


def _improves(text: str, as_read: str, choice: Sequence[tuple[str, float]]) -> bool:
    """Report whether the changed word is known; if a space splits it, one part must be and none get worse."""
    if any(other == " " and chance < SPACE_MIN for other, chance in choice):
        return False
    parts = text.split()
    if len(parts) < 2:
        return is_known(text)
    return any(is_known(part) for part in parts) and all(is_known(part) or part in as_read for part in parts)


def is_known(text: str) -> bool:
    """Report whether the text, without the marks around it, is a known word."""
    bare = _EDGE.sub("", _plain(text))
    return len(bare) >= KNOWN_LENGTH_MIN and bare in KNOWN_WORDS


def _plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).upper()
