"""Everything that a door may ask of one home; each method calls one service of one room."""

from __future__ import annotations

import threading

from receipt_pipeline.app.account import CHECK_ASSETS as CHECK_ASSETS
from receipt_pipeline.app.context import open_rooms
from receipt_pipeline.app.rollout import RolloutOrders
from receipt_pipeline.settings import Settings


class Services(RolloutOrders):
    """The rooms of one home, with every question and order that a door may put."""


_opened: dict[tuple[str, str], Services] = {}
_opening = threading.Lock()


def open_services(settings: Settings) -> Services:
    """Open a home once per process and return it again after that.

    Raises:
        LedgerUnavailable: the database cannot be reached within the bound.
    """
    with _opening:
        name = (str(settings.home), settings.ledger_url)
        known = _opened.get(name)
        if known is None or known.settings != settings:
            known = _opened[name] = open_rooms(settings, Services)
        return known
