"""Stage extract, mending part: blanks, brackets and stops of a header, where their form proves them."""

from __future__ import annotations

import re

from receipt_pipeline.chain.extract_labels import one_letter_apart
from receipt_pipeline.chain.words import KNOWN_WORDS

_FORM = r"(?:SDN|BHD|LTD|PTE|ENTERPRISE|TRADING)\b"
_OPEN_BRACKET = re.compile(rf"\((\w{{1,3}})\s+(?={_FORM})", re.IGNORECASE)
_MARK_BEFORE_FORM = re.compile(rf"(?<=[A-Z]{{5}})[.:;·-](?=\s+{_FORM})", re.IGNORECASE)
# What is left of a company's number behind the form of the company.
_NUMBER_LEFT = re.compile(r"(?<=\bBHD|\bLTD)\.?\s+\S*\d\S*[)\]}]$", re.IGNORECASE)
_TWO_BRACKETS = re.compile(r"\(\s*\((?=[^()]*\)[^()]*$)")
# Between the stops of initials a digit is a letter.
_DIGIT_AMONG_INITIALS = re.compile(r"(?<=[A-Z]\.)[10](?=\.[A-Z]?\b)", re.IGNORECASE)
_STOP_IN_WORD = re.compile(r"\b([A-Z]+)\.([A-Z]+)\b", re.IGNORECASE)
_GLUED_POSTCODE = re.compile(r"(?<!\d)(\d{5})(?=[A-Z]{2})", re.IGNORECASE)
_LETTER_IN_NUMBER = re.compile(r"(?<=\b\d\d)O\b|(?<=\b\d)O(?=\d)")
_GLUED_NUMBER = re.compile(r"\b(\d{1,4})([A-Z]{4,})\b", re.IGNORECASE)
_STOP_FOR_COMMA = re.compile(
    r"(?<=[A-Z]{4})\.(?=[A-Z]{4})|(?<=\d)\.(?= ?[A-Z]{4})|(?<=\d):(?= )|(?<=\b(?:KL|PJ|JB))\.(?= [A-Z])",
    re.IGNORECASE,
)
_COMMA_FOR_STOP = re.compile(r"(?<=\b[A-Z]\.[A-Z]),(?= ?\d)")
_LONG_WORD = re.compile(r"[A-Z]{8,}", re.IGNORECASE)
_GLUED_COMMA = re.compile(r",(?=[^\s,])")
# A nought between letters of a word; the short form of Sendirian Berhad, either letter read as a digit.
_WORD = re.compile(r"(?<![\w.])[A-Z0-9]{4,}(?![\w.])", re.IGNORECASE)
_NOUGHT_IN_WORD = re.compile(r"(?<=[A-Z])0+(?=[A-Z])", re.IGNORECASE)
_SHORT_FORM = re.compile(r"(?<![\w/])(?:[S5]/[B8])(?![\w/])")
_LETTER_OF_DIGIT = str.maketrans("0158", "OISB")
LETTERS_MIN = 4
# So long a word one inner letter from a known one is that one: nothing else is spelt so.
LONG_WORD_MIN = 8
_LONG_KNOWN = sorted(word for word in KNOWN_WORDS if len(word) >= LONG_WORD_MIN)


def mended_name(name: str) -> str:
    """Return the name with the marks that reading lost or made up put right."""
    name = _TWO_BRACKETS.sub("(", _OPEN_BRACKET.sub(r"(\1) ", name.replace("_", " ")))
    name = _DIGIT_AMONG_INITIALS.sub(lambda match: "I" if match.group() == "1" else "O", name)
    name = _NUMBER_LEFT.sub("", _LONG_WORD.sub(_as_known, _MARK_BEFORE_FORM.sub("", name)))
    return " ".join(name.split())


def with_letters_for_digits(name: str) -> str:
    """Return the name with digits put right that were read for letters.

    A nought between letters is the letter in any word of four letters and more (`F00DICIOUS`); other
    digits are letters only where the word is a known one with them (`5PEED`). `S/8` is `S/B`.
    """
    return _SHORT_FORM.sub("S/B", _WORD.sub(_lettered, name))


def _lettered(match: re.Match[str]) -> str:
    word = match.group()
    letters = sum(character.isalpha() for character in word)
    if letters == len(word) or letters < LETTERS_MIN:
        return word
    lettered = word.translate(_LETTER_OF_DIGIT)
    if lettered.upper() in KNOWN_WORDS:
        return lettered.upper() if word.upper() == word else lettered.title()
    nought = "O" if word.upper() == word else "o"
    return _NOUGHT_IN_WORD.sub(lambda found: nought * len(found.group()), word)


def mended_address(address: str) -> str:
    """Return the address with swallowed blanks back in place and stops within it turned to what they are."""
    address = _STOP_IN_WORD.sub(_joined_if_known, address.replace("_", " "))
    address = _LONG_WORD.sub(_as_known, address)
    address = _GLUED_POSTCODE.sub(r"\1 ", address)
    address = _GLUED_NUMBER.sub(_parted_if_known, address)
    address = _COMMA_FOR_STOP.sub(".", _LETTER_IN_NUMBER.sub("0", address))
    # Between the parts of an address a comma is meant; the reader often takes a small one for a stop.
    address = " ".join(_STOP_FOR_COMMA.sub(",", address).split())
    glued = len(_GLUED_COMMA.findall(address))
    # A shop sets its commas one way: the few that seem glued are blanks that reading swallowed.
    return _GLUED_COMMA.sub(", ", address) if glued * 2 <= address.count(", ") else address


def _joined_if_known(match: re.Match[str]) -> str:
    joined = match[1] + match[2]
    return joined if joined.upper() in KNOWN_WORDS else match.group()


def _parted_if_known(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}" if match[2].upper() in KNOWN_WORDS else match.group()


def _as_known(match: re.Match[str]) -> str:
    word = match.group().upper()
    if word in KNOWN_WORDS:
        return match.group()
    # Another last letter is mostly a plural.
    ends = (word[0], word[-1])
    near = [known for known in _LONG_KNOWN if (known[0], known[-1]) == ends and one_letter_apart(word, known)]
    if len(near) != 1:
        return match.group()
    return near[0].title() if match.group()[1].islower() else near[0]
