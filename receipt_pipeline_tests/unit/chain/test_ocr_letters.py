"""Doubtful letters: decided by a known word only where the reader itself held it possible."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from receipt_pipeline.chain.ocr.letters import KNOWN_WORDS, Letter, is_known, letters_of, mean_probability, weighed_text

CHARACTERS = ["", *"JALNI0123456789.TO", " "]


def line(text: str, **doubts: tuple[tuple[str, float], ...]) -> list[Letter]:
    letters = []
    for place, character in enumerate(text):
        others = doubts.get(f"at{place}", ())
        rest = 1.0 - sum(chance for _other, chance in others)
        letters.append(Letter(character, rest if others else 0.99, others))
    return letters


def columns(*sure: dict[str, float]) -> NDArray[np.float32]:
    table = np.zeros((len(sure), len(CHARACTERS)), np.float32)
    for row, chances in enumerate(sure):
        for character, chance in chances.items():
            table[row, CHARACTERS.index(character)] = chance
        table[row, 0] = max(0.0, 1.0 - sum(chances.values()))
    return table


def test_repeated_columns_are_one_letter_and_a_blank_parts_equal_ones() -> None:
    read = letters_of(columns({"L": 0.995}, {"L": 0.99}, {}, {"L": 0.999}), CHARACTERS)
    assert [(letter.text, letter.others) for letter in read] == [("L", ()), ("L", ())]
    assert mean_probability(read) == pytest.approx(0.997)


def test_a_doubtful_letter_keeps_what_else_it_may_be() -> None:
    (letter,) = letters_of(columns({"I": 0.6, "L": 0.3, "1": 0.02}), CHARACTERS)
    assert letter.text == "I"
    assert [(text, round(chance, 2)) for text, chance in letter.others] == [("L", 0.3), ("", 0.08), ("1", 0.02)]


def test_limits_say_what_a_surely_read_letter_may_be_instead() -> None:
    read = columns({"I": 0.95, "L": 0.03, "1": 0.004})
    assert letters_of(read, CHARACTERS, sure=0.9)[0].others == ()
    (letter,) = letters_of(read, CHARACTERS)
    assert [text for text, _chance in letter.others] == ["L", ""]


def test_a_letter_that_was_not_read_is_kept_as_a_possibility_unless_it_is_its_neighbour() -> None:
    read = letters_of(columns({"J": 0.99}, {"A": 0.4}, {"L": 0.99}, {"L": 0.4}, {"A": 0.99}), CHARACTERS)
    assert "".join(letter.text for letter in read) == "JLA"
    assert [letter.others[0][0] for letter in read if letter.others] == ["A"]


@pytest.mark.parametrize(
    ("letters", "text"),
    [
        (line("JAIAN 5", at2=(("L", 0.2),)), "JALAN 5"),
        (line("KUALE,", at4=(("S", 0.3), ("A", 0.25))), "KUALA,"),
        (line("TAMANI", at5=(("", 0.3),)), "TAMAN"),
        (line("0ATU 4", at0=(("B", 0.4),)), "BATU 4"),
        (line("14JALAN MANIS"), "14JALAN MANIS"),
        ([Letter("1", 0.99), Letter("4", 0.99), Letter("", 0.65, ((" ", 0.35),)), *line("JALAN")], "14 JALAN"),
        ([*line("CHA"), Letter("", 0.7, (("N", 0.3),)), *line("GE")], "CHANGE"),
    ],
)
def test_a_doubtful_word_becomes_the_known_one(letters: list[Letter], text: str) -> None:
    assert weighed_text(letters) == text


@pytest.mark.parametrize(
    "letters",
    [
        # Sure letters stay, however near a known word they are.
        line("JAIAN"),
        # A known word stays, also where another one was possible.
        line("TAMAN", at0=(("J", 0.45),)),
        # No alternative makes it a known word.
        line("WIAMO", at2=(("X", 0.4),)),
        # Digits are no words.
        line("12.50", at0=(("7", 0.4),), at4=(("8", 0.45),)),
    ],
)
def test_everything_else_stays_as_it_was_read(letters: list[Letter]) -> None:
    assert weighed_text(letters) == "".join(letter.text for letter in letters)


def test_a_weak_space_parts_nothing() -> None:
    assert weighed_text([*line("TAX"), Letter("", 0.85, ((" ", 0.15),)), *line("INVOICE")]) == "TAXINVOICE"


def test_the_likeliest_known_word_wins_whatever_the_order_of_trials() -> None:
    assert weighed_text(line("CASN", at3=(("E", 0.05), ("H", 0.3)))) == "CASH"


def test_a_hopeless_line_ends_within_its_bound() -> None:
    doubt = (("I", 0.1), ("O", 0.1), ("E", 0.1))
    word = "XQZXQZXQZXQZXQZXQZXQZ"
    assert weighed_text([Letter(character, 0.5, doubt) for character in word]) == word


def test_known_words_are_plain_capitals_and_hold_no_digit() -> None:
    assert all(word.isascii() and word.isalpha() and word.isupper() for word in KNOWN_WORDS)
    assert is_known("Jalan,")
    assert is_known("(JUMLAH)")
    assert not is_known("KG")
    assert not is_known("12")
