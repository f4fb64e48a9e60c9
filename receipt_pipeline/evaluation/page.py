"""The HTML page of an evaluation."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from PIL import Image

from receipt_pipeline.chain.decode import decode_scan
from receipt_pipeline.core.errors import ScanRejected

MISSES_SHOWN_MAX = 24
THUMB_WIDTH_PX = 300
THUMB_HEIGHT_PX = 700
THUMB_QUALITY = 45


def render_evaluation(
    document: Mapping[str, Any], pictures: Mapping[str, Path], comparison: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """Return the page as HTML without any reference to another file or host.

    Args:
        document: what `release_evaluation` gave.
        pictures: the scans by id; of those that were missed a small picture is put into the page.
        comparison: measures of this and the approved release, None where there is none.
    """
    shown = misses(document)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("receipt_pipeline.evaluation", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("evaluation.html").render(
        document=document,
        comparison=comparison,
        curve=_path([(at["genuine_reviewed"], at["forged_caught"]) for at in document["risk_curve"]]),
        dots=[(100 * row["risk_mean"], 100 - 100 * row["forged_share"]) for row in document["reliability"]],
        misses=shown[:MISSES_SHOWN_MAX],
        missed=len(shown),
        thumbs={item["scan_id"]: thumb(pictures.get(item["scan_id"])) for item in shown[:MISSES_SHOWN_MAX]},
    )


def misses(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scans that were missed: cleared although wrong first, then by their misread fields."""
    ranked = []
    for item in document["items"]:
        misread = sorted(
            name for name, value in item["fields"].items() if value is not None and not value["normalised"]
        )
        wrongly_cleared = item["decision"] == "clear" and item["wrong"]
        if wrongly_cleared or misread:
            ranked.append({**item, "misread": misread, "wrongly_cleared": wrongly_cleared})
    return sorted(ranked, key=lambda item: (not item["wrongly_cleared"], -len(item["misread"]), item["scan_id"]))


def thumb(picture: Path | None) -> str:
    """Return a small gray picture as a data URI, empty where the scan cannot be shown."""
    if picture is None:
        return ""
    try:
        page = decode_scan(picture.read_bytes()).pages[0]
    except (OSError, ScanRejected):
        return ""
    image = Image.fromarray(page.pixels).convert("L")
    image.thumbnail((THUMB_WIDTH_PX, THUMB_HEIGHT_PX))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=THUMB_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return an SVG path over a square of 100 units whose zero is at the lower left."""
    return "M" + " L".join(f"{100 * across:.1f},{100 - 100 * up:.1f}" for across, up in points)
