"""Markdown tables, and blocks of a page between two marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def table(header: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a Markdown table; `header` holds the column names divided by `|`."""
    names = [name.strip() for name in header.split("|")]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with every block put between its two marks."""
    for name, text in blocks.items():
        marks = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", flags=re.DOTALL)
        assert marks.search(page), name
        page = marks.sub(lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page)
    return page
