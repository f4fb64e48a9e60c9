"""Distributes a parallel run: long tests first, a file's tests together, process trees one at a time."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

# Folders with fast tests come last, so that no long test is the tail of the run.
FOLDER_ORDER = ("e2e", "crash", "chaos", "field", "orchestration", "conformance", "property", "unit", "tidy")
TESTS = "receipt_pipeline_tests"
# Tests that start a daemon, a web server and runs; two such trees at a time would only slow each other down.
PROCESS_TREES = "e2e"


def folder_rank(path: PurePath) -> int:
    """Return the place of a test file's folder in the order of the run."""
    inside = path.parts[path.parts.index(TESTS) :] if TESTS in path.parts else path.parts
    folders = [folder for folder in FOLDER_ORDER if folder in inside]
    return FOLDER_ORDER.index(folders[0]) if folders else len(FOLDER_ORDER)


def share_of(test_id: str) -> str:
    """Return which tests go to one worker together: those of a file, or all that start process trees."""
    file = test_id.partition("::")[0]
    return PROCESS_TREES if PROCESS_TREES in PurePath(file).parts else file


class FilesAndProcessTrees(LoadScopeScheduling):  # type: ignore[misc]
    """Assigns the groups in the order of collection."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
