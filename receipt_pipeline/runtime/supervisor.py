"""Start and stop the web server, the daemon and the code server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.reasons import SERVER_SILENT
from receipt_pipeline.runtime.processes import (
    HOST,
    end_noted_groups,
    free_port,
    listens,
    note_groups,
    start_group,
    stop_group,
)
from receipt_pipeline.runtime.serving import serving
from receipt_pipeline.settings import DAGSTER_SCHEMA, Settings

START_WAIT_S = 120.0
_OPEN_INSTANCE = (
    "import dagster as dg; i = dg.DagsterInstance.get(); i.get_runs(limit=1); i.all_instigator_state()"
)


def dagster_environment(settings: Settings) -> dict[str, str]:
    """Return the environment in which Dagster's processes of this home run."""
    env = dict(os.environ)
    env["DAGSTER_HOME"] = str(settings.dagster_home)
    env["RECEIPTS_HOME"] = str(settings.home)
    if settings.dagster_postgres_url:
        env["RECEIPTS_DAGSTER_POSTGRES_URL"] = settings.dagster_postgres_url
    return env


def prepare_dagster_home(settings: Settings) -> dict[str, str]:
    """Write dagster.yaml and open the instance once, alone; returns the environment to run in.

    Two processes that create the tables together break the home for good, so a lock stands
    before it and nothing else is started until it is done.
    """
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    env = dagster_environment(settings)
    with FileLock(str(settings.dagster_home / "prepare.lock")):
        wanted = settings.dagster_yaml.read_bytes()
        stamp = settings.dagster_home / "prepared"
        target = settings.dagster_home / "dagster.yaml"
        if not stamp.exists() or not target.exists() or target.read_bytes() != wanted:
            shutil.copyfile(settings.dagster_yaml, target)
            _make_schema(settings)
            subprocess.run([sys.executable, "-c", _OPEN_INSTANCE], env=env, check=True, capture_output=True)
            stamp.touch()
    return env


def _make_schema(settings: Settings) -> None:
    """Make Dagster's own schema where its storage shares a database with the ledger."""
    if settings.dagster_postgres_url is None:
        return
    engine = sa.create_engine(settings.ledger_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}")
    engine.dispose()


@dataclass(frozen=True, slots=True)
class Hosted:
    """A served home: the web server's port, its groups, and the code server that they share."""

    port: int
    processes: tuple[subprocess.Popen[bytes], ...]
    code_server: CodeServer | None = None

    @property
    def address(self) -> str:
        """Return the address of the web UI."""
        return f"http://{HOST}:{self.port}"

    def ended(self) -> str | None:
        """Return the name of a process that ended by itself, None while all run.

        A code server that ended is started again at its old port, where the others look for it.
        """
        for process in self.processes:
            if process.poll() is not None:
                return Path(str(process.args[0] if isinstance(process.args, list) else process.args)).name
        if self.code_server is not None:
            self.code_server.keep()
        return None

    def keep_running(self) -> None:
        """Look after the processes once; call it about every second.

        Raises:
            PipelineError: SERVER.SILENT.v1 when the web server or the daemon ended by itself.
        """
        gone = self.ended()
        if gone is not None:
            raise PipelineError(SERVER_SILENT, process=gone)


@contextmanager
def hosted(settings: Settings, *, port: int | None = None) -> Iterator[Hosted]:
    """Serve a home: clean up what a killed parent left, start, wait until healthy, stop at the end.

    Raises:
        NotAllowed: HOME.SERVED.v1 when another process serves this home.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with serving(settings):
        end_left_over(settings)
        env = prepare_dagster_home(settings)
        served = _start(settings, env, port or free_port())
        try:
            wait_until_healthy(served)
            yield served
        finally:
            for process in served.processes:
                stop_group(process)
            if served.code_server is not None:
                served.code_server.stop()
            _pid_file(settings).unlink(missing_ok=True)


def _start(settings: Settings, env: Mapping[str, str], port: int) -> Hosted:
    """Start the code server, then the web server and the daemon that ask it."""
    code_server = CodeServer(settings.dagster_home, env, folder=settings.home)
    code_server.start()
    note_groups(_pid_file(settings), code_server.leaders)
    code_server.wait_until_it_listens()
    workspace = str(code_server.workspace)
    commands = (
        ["dagster-webserver", "-h", HOST, "-p", str(port), "-w", workspace],
        ["dagster-daemon", "run", "-w", workspace],
    )
    started = tuple(
        start_group(command, folder=settings.home, env=env, log=settings.dagster_home / f"{command[0]}.log")
        for command in commands
    )
    note_groups(_pid_file(settings), (*code_server.leaders, *started))
    return Hosted(port, started, code_server)


def _pid_file(settings: Settings) -> Path:
    return settings.dagster_home / "serving.json"


def end_left_over(settings: Settings) -> int:
    """End process groups that a killed parent left behind; returns how many."""
    return end_noted_groups(_pid_file(settings))


def ask(port: int, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Send one GraphQL query to the web server and return its data.

    Raises:
        urllib.error.URLError, TimeoutError: the server does not answer (yet).
    """
    body = json.dumps({"query": query, "variables": dict(variables or {})}).encode()
    request = urllib.request.Request(
        f"http://{HOST}:{port}/graphql", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        data: dict[str, Any] = json.load(answer)["data"]
        return data


_HEALTH = "{instance{daemonHealth{allDaemonStatuses{daemonType healthy required}}}}"


def wait_until_healthy(served: Hosted) -> None:
    """Return once the web server answers and every required daemon beats.

    Raises:
        PipelineError: SERVER.SILENT.v1 after the bound, or when a process ended.
    """
    end = time.monotonic() + START_WAIT_S
    while time.monotonic() < end:
        served.keep_running()
        try:
            health = ask(served.port, _HEALTH)["instance"]["daemonHealth"]["allDaemonStatuses"]
            if all(entry["healthy"] for entry in health if entry["required"]):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError, KeyError, TypeError):
            pass
        time.sleep(0.5)
    raise PipelineError(SERVER_SILENT, waited_s=START_WAIT_S)


LOCATION = "receipts"
MODULE = "receipt_pipeline.definitions"
CODE_SERVER_WAIT_S = 120.0
# A code server that cannot start is tried again, but never in a tight loop.
RESTART_EVERY_S = 10.0


class CodeServer:
    """Dagster's gRPC server for the definitions, at the same loopback port at every start of a home.

    A web server and a daemon that start code servers of their own load the definitions twice and
    keep doing so: the daemon begins a new one every minute. One that is shared costs nothing while idle.
    """

    def __init__(self, dagster_home: Path, env: Mapping[str, str], *, folder: Path) -> None:
        """Name the place; nothing runs before `start`, then it runs in `folder`."""
        self.workspace = dagster_home / "workspace.yaml"
        self._log = dagster_home / "code-server.log"
        self._env = env
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._port = free_port(self._port_before())

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._port

    @property
    def leaders(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Return the leader of its group, once started."""
        return () if self._process is None else (self._process,)

    def start(self) -> None:
        """Start it and write the workspace (JSON is YAML) that leads to it."""
        server = {"host": HOST, "port": self._port, "location_name": LOCATION}
        self.workspace.write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
        command = ["dagster", "api", "grpc", "-m", MODULE, "-h", HOST, "-p", str(self._port)]
        command += ["--location-name", LOCATION, "--log-level", "warning"]
        self._process = start_group(command, folder=self._folder, env=self._env, log=self._log)
        self._started_at = time.monotonic()

    def wait_until_it_listens(self) -> None:
        """Return once it answers on its port.

        Raises:
            PipelineError: SERVER.SILENT.v1 when it ended or did not answer within the bound.
        """
        end = time.monotonic() + CODE_SERVER_WAIT_S
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                raise PipelineError(SERVER_SILENT, process="code server", log=str(self._log))
            if listens(self._port):
                return
            time.sleep(0.1)
        raise PipelineError(SERVER_SILENT, process="code server", waited_s=CODE_SERVER_WAIT_S)

    def keep(self) -> bool:
        """Start it again when it ended; returns whether it had to."""
        ended = self._process is not None and self._process.poll() is not None
        if not ended or time.monotonic() - self._started_at < RESTART_EVERY_S:
            return False
        self.start()
        return True

    def stop(self) -> None:
        """Stop it and everything it started."""
        if self._process is not None:
            stop_group(self._process)

    def _port_before(self) -> int | None:
        """Return the port of the last start: runs that still wait in the queue remember it."""
        try:
            return int(json.loads(self.workspace.read_text())["load_from"][0]["grpc_server"]["port"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return None
