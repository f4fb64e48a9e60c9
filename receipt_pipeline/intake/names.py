"""Which names of a drop folder are somebody's unfinished or side files: ignored and counted, never taken."""

from __future__ import annotations

TEMPORARY_PREFIXES = (".", "~")
TEMPORARY_SUFFIXES = (
    "~",
    ".part",
    ".partial",
    ".filepart",
    ".tmp",
    ".temp",
    ".crdownload",
    ".download",
    ".opdownload",
    ".swp",
    ".swx",
    ".lock",
    ".lck",
    ".bak",
    ".!ut",
)
SIDE_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r", "$recycle.bin", "__macosx"})
REFUSAL_SUFFIX = ".refusal.json"


def is_temporary(name: str) -> bool:
    """Tell whether a name is one that uploads, editors and desktops leave while or after they work."""
    folded = name.lower()
    return (
        folded.startswith(TEMPORARY_PREFIXES) or folded.endswith(TEMPORARY_SUFFIXES) or folded in SIDE_FILES
    )
