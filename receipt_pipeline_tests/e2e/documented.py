"""Reads the commands and queries that the documents show in fenced `console` and `sql` blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline_tests.suite_results import PROJECT

FENCE = re.compile(r"^```(console|sql)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Documented:
    """One command line, or one query, and where a reader finds it."""

    place: str
    kind: str
    text: str


def documented(kind: str) -> list[Documented]:
    found: dict[str, Documented] = {}
    for page in pages():
        for entry in _entries(page):
            if entry.kind == kind:
                found.setdefault(entry.text, entry)
    return list(found.values())


def pages() -> list[Path]:
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def _entries(page: Path) -> Iterator[Documented]:
    text = page.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        kind, content = block.groups()
        if kind == "sql":
            yield Documented(f"{page.name}:{line}", kind, content.strip())
            continue
        for offset, shown in enumerate(content.splitlines()):
            if shown.startswith("$ "):
                yield Documented(f"{page.name}:{line + offset}", kind, shown.removeprefix("$ "))
