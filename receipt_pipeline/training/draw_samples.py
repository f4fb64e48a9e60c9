"""Training: draws the small sample scans that ship in `data/samples`, with their manifest.

Run as `python -m receipt_pipeline.training.draw_samples`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from receipt_pipeline.training.draw_receipts import DrawnReceipt, Wear, draw_receipt, encoded, worn
from receipt_pipeline.training.tamper import paste_digit

MANIFEST = "manifest.json"
SAMPLE_SIZE_BYTES_MAX = 60_000
SCANNED = Wear(turn_degrees=0.4, blur_px=0.4, noise_levels=2.0)
UNWORN = Wear()
MEDIA_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "TIFF": "image/tiff", "PDF": "application/pdf"}
ENDINGS = {"JPEG": "jpg", "PNG": "png", "TIFF": "tif", "PDF": "pdf"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One shipped sample: its item id, the kind of file, and how its page comes about."""

    item_id: str
    kind: str
    page: Callable[[], Image.Image]


def _genuine(seed: int, wear: Wear) -> Callable[[], Image.Image]:
    return lambda: draw_receipt(seed, wear=wear).image


def _pasted(seed: int) -> Callable[[], Image.Image]:
    def page() -> Image.Image:
        clean: DrawnReceipt = draw_receipt(seed, wear=UNWORN)
        return worn(paste_digit(clean, random.Random(seed)), SCANNED, seed=seed).image

    return page


def _blank() -> Image.Image:
    return worn(
        DrawnReceipt(image=Image.new("L", (420, 560), 247), truth={}, cells=()), SCANNED, seed=0
    ).image


SAMPLES = (
    Sample("s-001", "JPEG", _genuine(1, SCANNED)),
    Sample("s-002", "PNG", _genuine(41, UNWORN)),
    Sample("s-003", "PDF", _genuine(51, SCANNED)),
    Sample("s-004-altered", "JPEG", _pasted(40)),
    Sample("s-005", "TIFF", _genuine(44, UNWORN)),
    Sample("s-006-blank", "JPEG", _blank),
)


def drawn_files() -> dict[str, bytes]:
    """Return the sample files by name, the manifest last; equal libraries give equal bytes."""
    files: dict[str, bytes] = {}
    items: list[dict[str, Any]] = []
    for sample in SAMPLES:
        data = encoded(sample.page(), sample.kind)
        assert len(data) <= SAMPLE_SIZE_BYTES_MAX, sample.item_id
        name = f"{sample.item_id}.{ENDINGS[sample.kind]}"
        files[name] = data
        items.append(
            {
                "item_id": sample.item_id,
                "uri": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "size_bytes": len(data),
                "media_type": MEDIA_TYPES[sample.kind],
            }
        )
    manifest = {
        "contract": "receipt-job/v1",
        "idempotency_key": "samples",
        "operation_class": "receipt-classification",
        "release": "production",
        "items": items,
    }
    files[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the samples; print their names and sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=Path, default=Path("data/samples"))
    options = parser.parse_args(arguments)
    options.samples.mkdir(parents=True, exist_ok=True)
    for name, data in drawn_files().items():
        (options.samples / name).write_bytes(data)
        sys.stdout.write(f"{name} {len(data)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
