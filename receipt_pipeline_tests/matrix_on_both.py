"""Plays the whole crash matrix on SQLite and on a real PostgreSQL server, and prints a table per ledger."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from receipt_pipeline_tests.postgres_server import driver_address, named_server, private_server

NAMED = "RECEIPTS_TEST_POSTGRES_URL"


def play(ledger: str, *arguments: str, environment: Mapping[str, str]) -> int:
    """Play every cell on one ledger; returns the command's exit status."""
    command = [str(Path(sys.executable).parent / "receipts"), "inject", "--all", "--ledger", ledger]
    env = {**os.environ, **environment}
    return subprocess.run([*command, *arguments], env=env, check=False).returncode


def main() -> int:
    """Play both; the worse exit status counts. Arguments go to `receipts inject`."""
    arguments = sys.argv[1:]
    statuses = [play("sqlite", *arguments, environment={})]
    if NAMED in os.environ:
        url = driver_address(named_server(os.environ[NAMED]).address)
        statuses.append(play("postgres", *arguments, environment={"RECEIPTS_POSTGRES_URL": url}))
    else:
        with private_server() as server:
            url = driver_address(server.address)
            statuses.append(play("postgres", *arguments, environment={"RECEIPTS_POSTGRES_URL": url}))
    return max(statuses)


if __name__ == "__main__":
    raise SystemExit(main())
