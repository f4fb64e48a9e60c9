"""PNG and SVG charts."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.query import fetch_rows, reading_report

# An opaque background: the page around it may be light or dark.
GROUND = "#fbfbf8"
INK = "#1f2933"
COLORS: Mapping[str, str] = {
    "succeeded": "#2f7d5d",
    "failed": "#b23b2a",
    "expired": "#b7791f",
    "canceled": "#64748b",
    "running": "#2b6cb0",
    "accepted": "#7aa5d2",
}
TABLE_FIGURES = (
    "accepted",
    "in_flight",
    "terminal",
    "succeeded",
    "verified_succeeded",
    "failed",
    "expired",
    "canceled",
    "retried",
    "unresolved",
    "unresolved_items",
)
_CLASSES = (
    "SELECT state, coalesce(terminal_class, phase) AS class, count(*) AS jobs"
    " FROM jobs GROUP BY ALL ORDER BY jobs DESC, class"
)
_TIMES = "SELECT total_s FROM job_report WHERE total_s IS NOT NULL ORDER BY total_s"


def report_markdown(published: Path, document: Mapping[str, Any]) -> str:
    """Return the account as Markdown: one table of figures and one chart, inline."""
    with reading_report(published) as connection:
        classes = [(row["state"], row["class"], row["jobs"]) for row in fetch_rows(connection, _CLASSES)]
        spans = [float(row["total_s"]) for row in fetch_rows(connection, _TIMES)]
    picture = base64.b64encode(chart_png(classes, spans)).decode()
    image = f"![jobs by class and time to completion](data:image/png;base64,{picture})"
    return f"{figures_table(document)}\n\n{image}\n"


def figures_table(document: Mapping[str, Any]) -> str:
    """Return the account's figures as a Markdown table."""
    lines = ["| figure | jobs |", "|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {document[name]} |" for name in TABLE_FIGURES]
    lines += [f"| **state** | {document['state']} |", f"| **gate** | {document['gate']} |"]
    return "\n".join(lines)


def chart_png(classes: Sequence[tuple[str, str, int]], spans_s: Sequence[float]) -> bytes:
    """Return a PNG of two panels.

    Args:
        classes: (state, class or phase, jobs), most jobs first.
        spans_s: seconds from submission to terminal record, ascending.
    """
    # Drawing is for the page alone; a process that only publishes does not load it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), dpi=110, facecolor=GROUND, layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_classes(left, classes)
    right.set_title("seconds to the terminal record", color=INK, loc="left")
    draw_spans(right, spans_s, ink=INK, color=COLORS["running"], none="no terminal job yet")
    for panel in (left, right):
        panel.set_facecolor(GROUND)
        panel.tick_params(colors=INK)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    return drawn.getvalue()


def _draw_classes(panel: Any, classes: Sequence[tuple[str, str, int]]) -> None:
    names = [f"{state} / {name}" for state, name, _ in classes]
    bars = panel.barh(names, [jobs for *_, jobs in classes], color=[COLORS.get(state, INK) for state, *_ in classes])
    panel.bar_label(bars, color=INK, padding=3)
    panel.invert_yaxis()
    panel.set_title("jobs by state and class", color=INK, loc="left")


def draw_spans(panel: Any, spans_s: Sequence[float], *, ink: str, color: str, none: str) -> None:
    """Draw how many jobs took how many seconds, or say in words that there is `none`."""
    if not spans_s:
        show_text(panel, none, ink=ink)
        return
    panel.hist(spans_s, bins=min(30, max(5, len(spans_s))), color=color)
    panel.set_xlabel("seconds", color=ink)
    panel.set_ylabel("jobs", color=ink)
    panel.yaxis.get_major_locator().set_params(integer=True)


def show_text(panel: Any, words: str, *, ink: str) -> None:
    """Write in the middle of a panel why nothing is drawn on it."""
    panel.text(0.5, 0.5, words, color=ink, ha="center", transform=panel.transAxes)
    panel.set_xticks([])
    panel.set_yticks([])


# Drawn in this otherwise unused color, which is then replaced by the page's ink.
PAGE_INK = "#010203"
CLASS_COLORS: Mapping[str, str] = {
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
        panel.set_title(title, color=PAGE_INK, loc="left", fontsize=11)
        panel.tick_params(colors=PAGE_INK, labelsize=9)
        for name, side in panel.spines.items():
            side.set_color(PAGE_INK)
            side.set_visible(name in ("left", "bottom"))
        draw(panel)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :].replace(PAGE_INK, "currentColor")


def balance_svg(classes: Sequence[tuple[str, int]]) -> str:
    """Return accepted items by class, most first."""

    def draw(panel: Any) -> None:
        if not classes:
            show_text(panel, "no item was accepted yet", ink=PAGE_INK)
            return
        colors = [CLASS_COLORS.get(name, BLUE) for name, _ in classes]
        bars = panel.barh([name for name, _ in classes], [count for _, count in classes], color=colors)
        panel.bar_label(bars, color=PAGE_INK, padding=3, fontsize=9)
        panel.invert_yaxis()
        panel.xaxis.get_major_locator().set_params(integer=True)

    return _svg(draw, title="accepted items by class")


def spans_svg(spans_s: Sequence[float]) -> str:
    """Return the distribution of seconds from submission until all effects are committed."""

    def draw(panel: Any) -> None:
        draw_spans(panel, spans_s, ink=PAGE_INK, color=BLUE, none="no job is finished yet")

    return _svg(draw, title="time to reconcile")


def queue_svg(waiting: Sequence[tuple[float, float, int]]) -> str:
    """Return how long accepted jobs have waited, against their limits.

    Args:
        waiting: (age in seconds, limit in seconds, items) of each job without a first claim.
    """

    def draw(panel: Any) -> None:
        if not waiting:
            show_text(panel, "no job is waiting", ink=PAGE_INK)
            return
        late = [age > 0.8 * limit for age, limit, _ in waiting]
        sizes = [20 + 4 * min(items, 50) for *_, items in waiting]
        colors = [RED if near else BLUE for near in late]
        panel.scatter([age for age, *_ in waiting], [limit for _, limit, _ in waiting], s=sizes, c=colors)
        longest = max(max(age, limit) for age, limit, _ in waiting)
        panel.plot([0, longest], [0, longest], color=RED, linewidth=1, linestyle="--")
        panel.set_xlabel("waited, seconds (right of the line: expired)", color=PAGE_INK, fontsize=9)
        panel.set_ylabel("may wait, seconds", color=PAGE_INK, fontsize=9)

    return _svg(draw, title="queue age against its limit")
