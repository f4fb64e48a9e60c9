"""A clock that moves only when a test moves it."""

from __future__ import annotations

import datetime as dt

START = dt.datetime(2026, 11, 28, 8, 0, tzinfo=dt.UTC)


class FakeClock:
    """Stands in for the host clock; times are aware UTC."""

    def __init__(self, start: dt.datetime = START) -> None:
        assert start.tzinfo is not None, "a naive start would decide by the zone of the machine"
        self._now = start

    def now(self) -> dt.datetime:
        return self._now

    def advance(self, seconds: float) -> dt.datetime:
        self._now += dt.timedelta(seconds=seconds)
        return self._now

    def set(self, moment: dt.datetime) -> None:
        assert moment.tzinfo is not None
        self._now = moment
