"""The resource through which Dagster's code reaches the services of this home."""

import os
from typing import Any

import dagster as dg
from pydantic import Field

from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.app.setup import check_ledger_not_lost
from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_LOST
from receipt_pipeline.settings import Settings, read_settings


class ReceiptServices(dg.ConfigurableResource[Any]):
    """The services of one home, opened once per process.

    `environment` overrides variables of the process; empty in production. `dispatch_wait_s` is how
    long a tick of the dispatch sensor looks out for work, so that a wave starts soon after acceptance.
    """

    dispatch_wait_s: float = 0.0
    environment: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> Settings:
        """Read the settings of this home."""
        return read_settings({**os.environ, **self.environment})

    def open(self) -> AppContext:
        """Return the services; the ledger is migrated and its releases are set up."""
        return open_app(self.settings())

    def refuse_lost_ledger(self) -> None:
        """Keep a code location from loading over a home whose ledger is gone; creates nothing.

        A database that cannot be reached says so at the first tick: it may be back by then.

        Raises:
            LedgerUnavailable: LEDGER.LOST.v1.
        """
        try:
            check_ledger_not_lost(self.settings())
        except LedgerUnavailable as error:
            if error.reason == LEDGER_LOST:
                raise
