"""The one process of a served home that has the definitions loaded; web server and daemon share it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.reasons import SERVER_SILENT
from receipt_pipeline.defs.process_groups import HOST, free_port, listens, start_group, stop_group

LOCATION = "receipts"
MODULE = "receipt_pipeline.definitions"
START_WAIT_S = 120.0
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
        end = time.monotonic() + START_WAIT_S
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                raise PipelineError(SERVER_SILENT, process="code server", log=str(self._log))
            if listens(self._port):
                return
            time.sleep(0.1)
        raise PipelineError(SERVER_SILENT, process="code server", waited_s=START_WAIT_S)

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
