"""Start, watch and stop the web server, the daemon and the code server of one instance."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.reasons import SERVER_SILENT
from receipt_pipeline.runtime.processes import (
    HOST,
    free_port,
    is_listening,
    record_groups,
    start_group,
    stop_group,
    stop_recorded_groups,
)
from receipt_pipeline.runtime.serving import serving
from receipt_pipeline.settings import DAGSTER_SCHEMA, Settings

LOCATION = "receipts"
MODULE = "receipt_pipeline.definitions"
CODE_SERVER, WEB_SERVER, DAEMON = "code-server", "dagster-webserver", "dagster-daemon"
START_WAIT_S = 120.0
# A code server that cannot start is tried again, but never in a tight loop.
RESTART_EVERY_S = 10.0
_OPEN_DAGSTER = "import dagster as dg; i = dg.DagsterInstance.get(); i.get_runs(limit=1); i.all_instigator_state()"
_HEALTH = "{instance{daemonHealth{allDaemonStatuses{healthy required}}}}"


def dagster_environment(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which the Dagster processes of this instance run, by default the caller's."""
    env = dict(os.environ if environ is None else environ)
    env |= {"DAGSTER_HOME": str(settings.dagster_home), "RECEIPTS_HOME": str(settings.home)}
    if settings.dagster_postgres_url:
        env["RECEIPTS_DAGSTER_POSTGRES_URL"] = settings.dagster_postgres_url
    return env


def prepare_dagster_home(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Write dagster.yaml and create Dagster's tables once; returns the environment to run in.

    Two processes that create the tables together break Dagster's storage for good, so one process
    does it under a lock before anything else starts.
    """
    folder = settings.dagster_home
    folder.mkdir(parents=True, exist_ok=True)
    env = dagster_environment(settings, environ)
    prepared, target = folder / "prepared", folder / "dagster.yaml"
    with FileLock(str(folder / "prepare.lock")):
        wanted = settings.dagster_yaml.read_bytes()
        if not prepared.exists() or not target.exists() or target.read_bytes() != wanted:
            shutil.copyfile(settings.dagster_yaml, target)
            if settings.dagster_postgres_url is not None:
                engine = sa.create_engine(settings.ledger_url)
                with engine.begin() as connection:
                    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}")
                engine.dispose()
            subprocess.run([sys.executable, "-c", _OPEN_DAGSTER], env=env, check=True, capture_output=True)
            prepared.touch()
    return env


class Supervisor:
    """The code server of one instance, and the web server and the daemon that share it.

    Without a shared one, the web server and the daemon load the definitions in code servers of their
    own, and the daemon starts a new one every minute.
    """

    def __init__(self, settings: Settings, env: Mapping[str, str], *, port: int) -> None:
        """Choose the ports; nothing runs before `start`."""
        self.port = port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._settings = settings
        self._env = env
        self._workspace = settings.dagster_home / "workspace.yaml"
        self._code_server_started_at = 0.0
        self.code_server_port = free_port(self._previous_port())

    @property
    def address(self) -> str:
        """Return the address of the web UI."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start the code server, then the web server and the daemon; return once all are healthy.

        Raises:
            PipelineError: SERVER.SILENT.v1 when a process ended or did not answer in time.
        """
        server = {"host": HOST, "port": self.code_server_port, "location_name": LOCATION}
        self._workspace.write_text(json.dumps({"load_from": [{"grpc_server": server}]}))  # JSON is YAML
        self._start_code_server()
        self._wait(self._has_code_server)
        workspace = str(self._workspace)
        self._start(WEB_SERVER, [WEB_SERVER, "-h", HOST, "-p", str(self.port), "-w", workspace])
        self._start(DAEMON, [DAEMON, "run", "-w", workspace])
        self._wait(lambda: is_healthy(self.port))

    def keep_running(self) -> None:
        """Check the processes; call it about every second. A code server that ended starts again.

        Raises:
            PipelineError: SERVER.SILENT.v1 when the web server or the daemon ended.
        """
        for name, process in self.processes.items():
            if process.poll() is None:
                continue
            if name != CODE_SERVER:
                raise PipelineError(SERVER_SILENT, process=name)
            if time.monotonic() - self._code_server_started_at >= RESTART_EVERY_S:
                self._start_code_server()

    def stop(self) -> None:
        """Stop the daemon and the web server, then the code server that they use."""
        for process in reversed(self.processes.values()):
            stop_group(process)
        _record(self._settings).unlink(missing_ok=True)

    def _start_code_server(self) -> None:
        port = str(self.code_server_port)
        options = ["-h", HOST, "-p", port, "--location-name", LOCATION, "--log-level", "warning"]
        self._start(CODE_SERVER, ["dagster", "api", "grpc", "-m", MODULE, *options])
        self._code_server_started_at = time.monotonic()

    def _has_code_server(self) -> bool:
        if self.processes[CODE_SERVER].poll() is not None:
            raise PipelineError(SERVER_SILENT, process=CODE_SERVER, log=str(self._log(CODE_SERVER)))
        return is_listening(self.code_server_port)

    def _log(self, name: str) -> Path:
        return self._settings.dagster_home / f"{name}.log"

    def _start(self, name: str, command: list[str]) -> None:
        self.processes[name] = start_group(command, folder=self._settings.home, env=self._env, log=self._log(name))
        record_groups(_record(self._settings), self.processes.values())

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        end = time.monotonic() + START_WAIT_S
        while not is_ready():
            if time.monotonic() >= end:
                raise PipelineError(SERVER_SILENT, waited_s=START_WAIT_S)
            self.keep_running()
            time.sleep(0.2)

    def _previous_port(self) -> int | None:
        """Return the code server's port of the last start: runs that wait in the queue remember it."""
        try:
            return int(json.loads(self._workspace.read_text())["load_from"][0]["grpc_server"]["port"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return None


@contextmanager
def running_instance(
    settings: Settings, *, port: int | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Supervisor]:
    """Run the web server and the daemon of an instance; stop what a killed parent left, and all at the end.

    Args:
        environ: what the processes inherit, by default the environment of this process.
    Raises:
        NotAllowed: HOME.SERVED.v1 when another process runs this instance.
        PipelineError: SERVER.SILENT.v1 when they do not become healthy in time.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with serving(settings):
        stop_left_over(settings)
        env = prepare_dagster_home(settings, environ)
        supervisor = Supervisor(settings, env, port=port or free_port())
        try:
            supervisor.start()
            yield supervisor
        finally:
            supervisor.stop()


def stop_left_over(settings: Settings) -> int:
    """Stop process groups that a killed parent left behind; returns how many."""
    return stop_recorded_groups(_record(settings))


def _record(settings: Settings) -> Path:
    return settings.dagster_home / "serving.json"


def is_healthy(port: int) -> bool:
    """Return whether the web server answers and every required daemon sends heartbeats."""
    request = urllib.request.Request(
        f"http://{HOST}:{port}/graphql",
        data=json.dumps({"query": _HEALTH}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            daemons = json.load(answer)["data"]["instance"]["daemonHealth"]["allDaemonStatuses"]
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError, KeyError, TypeError):
        return False
    return all(daemon["healthy"] for daemon in daemons if daemon["required"])
