"""A throw-away home for drills: short limits on the real clock, embedded, apart from everything."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DRILL_LIMITS: Mapping[str, str] = {
    "RECEIPTS_LIMIT_LEASE_TTL_S": "4",
    "RECEIPTS_LIMIT_HEARTBEAT_S": "1",
    "RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "60",
    "RECEIPTS_LIMIT_RETRY_BASE_S": "0.5",
    "RECEIPTS_LIMIT_RETRY_CAP_S": "1",
    # A run may take minutes to start on a busy machine; one that ends badly has its wave closed at once.
    "RECEIPTS_LIMIT_WAVE_TTL_S": "900",
    "RECEIPTS_LIMIT_DELIVERY_RETRY_S": "0.2",
    "RECEIPTS_LIMIT_OVERRUN_GRACE_S": "1",
    "RECEIPTS_LIMIT_WORKER_TTL_S": "600",
}
# A drill never touches the server of the home it is started from. They are emptied, not left out: a
# child process adds what it is given to the environment of the command.
_EMPTIED = ("RECEIPTS_POSTGRES_URL", "RECEIPTS_DRILL_PLAN", "RECEIPTS_DRILLS")
_LEFT_OUT = "DAGSTER_HOME"


def apart(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what leads to the home, the server and the plan of the caller."""
    kept = {name: value for name, value in environ.items() if name != _LEFT_OUT}
    return kept | dict.fromkeys(_EMPTIED, "")


@contextmanager
def throwaway_environment(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment of an empty home that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="receipts-drill-"))
    try:
        yield {**apart(environ), **DRILL_LIMITS, "RECEIPTS_HOME": str(folder / "home")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
