"""A sandbox shares no data directory and no database with the command that opens it."""

from __future__ import annotations

from pathlib import Path

from receipt_pipeline.drill.sandbox import sandbox
from receipt_pipeline.settings import read_settings


def test_a_drill_never_touches_the_instance_it_was_started_from(tmp_path: Path) -> None:
    caller = {
        "RECEIPTS_HOME": str(tmp_path),
        "RECEIPTS_POSTGRES_URL": "postgresql://127.0.0.1/receipts",
        "RECEIPTS_DRILL_PLAN": "[]",
        "RECEIPTS_DRILLS": "enabled",
        "RECEIPTS_TENANT": "acme",
    }
    with sandbox(caller, {"RECEIPTS_LIMIT_WAVE_SLOTS": "1"}) as given:
        # A child process adds what it is given to the caller's own environment.
        settings = read_settings({**caller, **given})
        assert settings.ledger_url == f"sqlite:///{settings.home / 'ledger.db'}"
        assert settings.home != tmp_path
        assert (settings.drill_plan, settings.drills_enabled, settings.tenant) == ("", False, "acme")
        assert settings.limits.work.wave_slots == 1
        settings.home.mkdir()
    assert not settings.home.exists()
