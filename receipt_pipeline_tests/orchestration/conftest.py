"""Opened homes for the tests of Dagster's room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

OpenHome = Callable[..., OpenedHome]


@pytest.fixture
def open_named(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenHome]:
    opened: list[OpenedHome] = []

    def open_one(name: str = "home", **limits: float) -> OpenedHome:
        environment = {f"RECEIPTS_LIMIT_{limit.upper()}": str(value) for limit, value in limits.items()}
        opened.append(open_home(tmp_path / name, migrated_sqlite, clock, monkeypatch, environment))
        return opened[-1]

    yield open_one
    for each in opened:
        each.app.close()


@pytest.fixture
def opened(open_named: OpenHome) -> OpenedHome:
    return open_named()
