"""Draws the page's charts as SVG whose ink is the page's own, so that they read in light and in dark."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from receipt_pipeline.accounting.charts import draw_spans, say_nothing

# Drawn in this colour, which is nobody's, and then handed to the page's ink.
INK = "#010203"
CLASS_COLOURS: Mapping[str, str] = {
    "classified": "#3f9b76",
    "unchanged": "#7cb7a0",
    "rejected": "#c98a2b",
    "cancelled": "#7b8794",
    "superseded": "#9aa5b1",
    "expired": "#b7791f",
    "unresolved": "#d05a48",
    "open": "#5b8fc7",
}
BLUE = "#5b8fc7"
RED = "#d05a48"


def _svg(draw: Callable[[Any], None], *, title: str) -> str:
    """Return one panel as inline SVG without a background."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Fixed ids, and text as text: the same account gives the same page, and it can be searched.
    with rc_context({"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        figure.patch.set_alpha(0)
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        panel.set_title(title, color=INK, loc="left", fontsize=11)
        panel.tick_params(colors=INK, labelsize=9)
        for name, side in panel.spines.items():
            side.set_color(INK)
            side.set_visible(name in ("left", "bottom"))
        draw(panel)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def balance_svg(classes: Sequence[tuple[str, int]]) -> str:
    """Return accepted items by class, most first."""

    def draw(panel: Any) -> None:
        if not classes:
            say_nothing(panel, "no item was accepted yet", ink=INK)
            return
        colours = [CLASS_COLOURS.get(name, BLUE) for name, _ in classes]
        bars = panel.barh([name for name, _ in classes], [count for _, count in classes], color=colours)
        panel.bar_label(bars, color=INK, padding=3, fontsize=9)
        panel.invert_yaxis()
        panel.xaxis.get_major_locator().set_params(integer=True)

    return _svg(draw, title="accepted items by class")


def spans_svg(spans_s: Sequence[float]) -> str:
    """Return the distribution of seconds from submission to reconciled truth."""

    def draw(panel: Any) -> None:
        draw_spans(panel, spans_s, ink=INK, colour=BLUE, none="no job is settled yet")

    return _svg(draw, title="time to reconciled truth")


def queue_svg(waiting: Sequence[tuple[float, float, int]]) -> str:
    """Return how long accepted jobs have waited, against their limits.

    Args:
        waiting: (age in seconds, limit in seconds, items) of each job without a first claim.
    """

    def draw(panel: Any) -> None:
        if not waiting:
            say_nothing(panel, "nothing waits", ink=INK)
            return
        late = [age > 0.8 * limit for age, limit, _ in waiting]
        sizes = [20 + 4 * min(items, 50) for *_, items in waiting]
        colours = [RED if near else BLUE for near in late]
        panel.scatter([age for age, *_ in waiting], [limit for _, limit, _ in waiting], s=sizes, c=colours)
        longest = max(max(age, limit) for age, limit, _ in waiting)
        panel.plot([0, longest], [0, longest], color=RED, linewidth=1, linestyle="--")
        panel.set_xlabel("waited, seconds (right of the line: expired)", color=INK, fontsize=9)
        panel.set_ylabel("may wait, seconds", color=INK, fontsize=9)

    return _svg(draw, title="queue age against its limit")
