"""The Dagster code location; importing and loading it opens and creates nothing."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions of every module in `defs/`."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
