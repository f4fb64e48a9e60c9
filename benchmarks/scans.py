"""The scans to measure on: a folder's, or receipts that the project's own generator draws."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIXES = {".jpg", ".jpeg", ".png"}


@contextmanager
def scans_to_measure(folder: Path | None, count: int) -> Iterator[list[Path]]:
    """Yield `count` scans of a folder, or as many drawn ones in a folder that is removed again."""
    if folder is not None:
        yield sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)[:count]
        return
    from training.draw import draw_receipt

    with tempfile.TemporaryDirectory() as made:
        paths = []
        for seed in range(count):
            path = Path(made) / f"drawn-{seed:04d}.jpg"
            draw_receipt(seed).image.convert("RGB").save(path, quality=85)
            paths.append(path)
        yield paths
