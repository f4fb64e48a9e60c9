"""Opens the services for one command, as the principal that the settings name."""

from __future__ import annotations

from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.settings import Settings, read_settings


def settings() -> Settings:
    """Read the settings of this home."""
    return read_settings()


def services() -> AppContext:
    """Open the services of this home."""
    return open_app(settings())
