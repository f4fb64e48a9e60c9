"""The resource through which Dagster's code reaches the application."""

import os
from typing import Any

import dagster as dg
from pydantic import Field

from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.drill.failure_plan import install_from
from receipt_pipeline.settings import Settings, read_settings
from receipt_pipeline.worker.heartbeat import stop_all

# Steps of one process pass ids to each other; nothing of a wave is worth a file.
IN_MEMORY = "in_memory"


class AppResource(dg.ConfigurableResource[Any]):
    """The application of one instance, opened once per process at the first use.

    `environment` overrides variables of the process; it is empty in production.
    """

    environment: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> Settings:
        """Read the settings of this instance."""
        return read_settings({**os.environ, **self.environment})

    def open(self) -> AppContext:
        """Return the application with its ledger migrated and its releases approved.

        Raises:
            LedgerUnavailable: the ledger is gone (LEDGER.LOST.v1) or cannot be reached.
            NotAllowed: DRILL.DISABLED.v1 when the environment has a failure plan but does not enable drills.
        """
        install_plan_of_environment()
        return open_app(self.settings())


# Sensors use this instance: one that declares a resource makes the code server open Dagster's storage
# at every tick.
APP = AppResource()
_plans_installed: set[str] = set()


def install_plan_of_environment() -> None:
    """Install the failure plan that the environment of this process has, if any, once."""
    settings = read_settings()
    if settings.drill_plan not in _plans_installed:
        install_from(settings.drill_plan, enabled=settings.drills_enabled, silence=stop_all)
        _plans_installed.add(settings.drill_plan)


@dg.definitions
def resources() -> dg.Definitions:
    """Return the resources of the code location."""
    return dg.Definitions(resources={"app": APP, IN_MEMORY: dg.mem_io_manager})
