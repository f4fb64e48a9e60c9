"""A drill's home is apart from the home that the command was started for."""

from __future__ import annotations

from pathlib import Path

from receipt_pipeline.drill.sandbox import throwaway_environment
from receipt_pipeline.settings import read_settings


def test_a_drill_started_beside_a_server_never_touches_it(tmp_path: Path) -> None:
    caller = {
        "RECEIPTS_HOME": str(tmp_path),
        "RECEIPTS_POSTGRES_URL": "postgresql://127.0.0.1/receipts",
        "RECEIPTS_DRILL_PLAN": "[]",
        "RECEIPTS_DRILLS": "enabled",
        "RECEIPTS_TENANT": "acme",
    }
    with throwaway_environment(caller) as given:
        # A child process adds what it is given to the caller's own environment.
        settings = read_settings({**caller, **given})
        assert settings.ledger_url == f"sqlite:///{settings.home / 'ledger.db'}"
        assert settings.home != tmp_path
        assert (settings.drill_plan, settings.drills_enabled, settings.tenant) == ("", False, "acme")
        settings.home.mkdir()
    assert not settings.home.exists()
