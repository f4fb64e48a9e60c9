"""Every ledger command of this suite is also one that the export must hear of."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _every_change_is_found_again(watched_changes: None) -> None:
    """Watch every commit on SQLite."""
