"""Reads one JSON object field by field: types and ranges are checked, what is left over is unknown."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID, FIELD_MISSING, FIELD_UNKNOWN
from receipt_pipeline.intake.strict_json import part

TEXT_LENGTH_MAX = 200
YEAR_MIN, YEAR_MAX = 2000, 2200
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)")

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """One object of a document on its way into a record.

    Every reader takes its field away, so that `finish` can name what the contract does not know.
    """

    def __init__(self, value: object, pointer: str = "") -> None:
        if not isinstance(value, dict):
            raise InputRefused(FIELD_INVALID, pointer=pointer, expected="object")
        self._left: dict[str, Any] = dict(value)
        self.pointer = pointer

    def has(self, name: str) -> bool:
        """Tell whether the field is given."""
        return name in self._left

    def take(self, name: str) -> Any:
        """Take a field's value as it is. Raises FIELD.MISSING.v1 when there is none."""
        if name not in self._left:
            raise InputRefused(FIELD_MISSING, pointer=self.at(name))
        return self._left.pop(name)

    def ignore(self, name: str) -> None:
        """Let a field pass that is for people only; it is kept nowhere."""
        self._left.pop(name, None)

    def at(self, name: str) -> str:
        """Return the JSON pointer of a field."""
        return self.pointer + part(name)

    def required_text(
        self, name: str, *, length_max: int = TEXT_LENGTH_MAX, form: re.Pattern[str] | None = None
    ) -> str:
        """Take a text: not empty, printable, without white space at its ends."""
        value = self.take(name)
        if not isinstance(value, str):
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="text")
        if len(value) > length_max:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), length_max=length_max)
        # isprintable also refuses line ends, zeros and lone surrogates, which a database cannot hold.
        if not value or value != value.strip() or not value.isprintable():
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="printable text")
        if form is not None and form.fullmatch(value) is None:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=form.pattern)
        return value

    def text(
        self, name: str, *, length_max: int = TEXT_LENGTH_MAX, form: re.Pattern[str] | None = None
    ) -> str | None:
        """Take a text, None when it is not given."""
        if name not in self._left:
            return None
        return self.required_text(name, length_max=length_max, form=form)

    def whole_number(self, name: str, *, low: int, high: int) -> int | None:
        """Take a whole number within its range, None when it is not given."""
        if name not in self._left:
            return None
        value = self._left.pop(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected="whole number")
        if not low <= value <= high:
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), low=low, high=high)
        return value

    def moment(self, name: str) -> dt.datetime | None:
        """Take an ISO 8601 time with its zone as an aware UTC time, None when it is not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = dt.datetime.fromisoformat(value) if _MOMENT.fullmatch(value) else None
            moment = found.astimezone(dt.UTC) if found else None
        except (ValueError, OverflowError):
            moment = None
        if moment is None or not YEAR_MIN <= moment.year <= YEAR_MAX:
            expected = "ISO 8601 time with zone"
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=expected)
        return moment

    def choice(self, name: str, choices: type[Choice], default: Choice) -> Choice:
        """Take one of the named values, the default when it is not given."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return choices(value)
        except ValueError:
            expected = [choice.value for choice in choices]
            raise InputRefused(FIELD_INVALID, pointer=self.at(name), expected=expected) from None

    def section(self, name: str) -> Fields:
        """Take a nested object, an empty one when it is not given."""
        return Fields(self._left.pop(name, {}), self.at(name))

    def finish(self) -> None:
        """Refuse what no reader took. Raises FIELD.UNKNOWN.v1 with the first such field."""
        if self._left:
            raise InputRefused(FIELD_UNKNOWN, pointer=self.at(min(self._left)))


def renamed(value: object, names: Mapping[str, str], pointer: str) -> object:
    """Return an object with short field names written out; giving both names is refused."""
    if not isinstance(value, dict):
        return value
    given = dict(value)
    for short, name in names.items():
        if short not in given:
            continue
        if name in given:
            raise InputRefused(FIELD_INVALID, pointer=pointer + part(short), same_as=name)
        given[name] = given.pop(short)
    return given
