"""Draws the packages and what they exchange: `python docs/draw_architecture.py` writes `docs/images/architecture.svg`.

Names of boxes are folders; an arrow leads from what is computed to what reads it.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, PAPER

TARGET = Path(__file__).parent / "images" / "architecture.svg"

_WIDTH, _HEIGHT, _BOX, _TALL = 9.0, 5.6, 1.72, 0.62

#: Left edges of the columns.
_LEFTS = (0.25, 2.5, 4.75, 7.0)

#: Lower edge of a row -> its colour, and of each box the folder and what it holds.
_ROWS = {
    3.2: (
        BLUE,
        ("formats", "bits and codes"),
        ("compress", "knobs to draft"),
        ("models", "networks, files"),
        ("speculate", "decoding loop"),
    ),
    0.25: (
        ORANGE,
        ("catalog", "devices, engines"),
        ("network", "operators of a step"),
        ("step", "time of a step"),
        ("speculation", "price of a cycle"),
    ),
}


def _box(axes: Axes, left: float, low: float, colour: str, name: str, what: str, width: float = _BOX) -> None:
    style, face = "round,pad=0,rounding_size=0.06", (colour, 0.15)
    axes.add_patch(
        FancyBboxPatch((left, low), width, _TALL, boxstyle=style, linewidth=1.2, edgecolor=colour, facecolor=face)
    )
    axes.text(left + width / 2, low + 0.42, name, ha="center", va="center", fontsize=12, weight="bold")
    axes.text(left + width / 2, low + 0.17, what, ha="center", va="center", fontsize=10)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", dx: float = 0.08) -> None:
    axes.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color=INK, linewidth=1.2, shrinkA=0, shrinkB=0))
    axes.text((start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2, text, fontsize=10, va="center")


def draw() -> Figure:
    """The picture."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(0, _HEIGHT)
    axes.axis("off")
    headings = {
        5.35: "jaxspec: what users call",
        3.97: "jaxspec: networks and drafts",
        1.02: "hwmodels: hardware and abstract work; never imports jaxspec",
    }
    for height, heading in headings.items():
        axes.text(0.25, height, heading, fontsize=12, va="center", weight="bold")
    _box(
        axes,
        _LEFTS[0],
        4.55,
        GREEN,
        "cli, api, studies",
        "a folder for each command, settings, runs, results, reports",
        8.47,
    )
    for low, (colour, *boxes) in _ROWS.items():
        for left, (name, what) in zip(_LEFTS, boxes, strict=True):
            _box(axes, left, low, colour, name, what)
        for left, right in itertools.pairwise(_LEFTS):
            _arrow(axes, (left + _BOX, low + _TALL / 2), (right, low + _TALL / 2))
    _box(axes, _LEFTS[2], 1.75, GREEN, "tuning", "objective, gradient", _LEFTS[3] + _BOX - _LEFTS[2])
    _arrow(axes, (_LEFTS[3] + 0.9, 3.2), (_LEFTS[3] + 0.9, 1.75 + _TALL), "acceptance")
    _arrow(axes, (_LEFTS[1] + 0.9, 3.2), (_LEFTS[2], 1.75 + _TALL / 2), "footprint: bits read", dx=-1.75)
    _arrow(axes, (_LEFTS[3] + 0.9, 0.25 + _TALL), (_LEFTS[3] + 0.9, 1.75), "seconds")
    _arrow(axes, (_LEFTS[2] + 1.3, 1.75 + _TALL), (_LEFTS[1] + 1.5, 3.2), "knobs", dx=0.5)
    return figure


def main() -> None:
    """Write the picture; the same bytes every time."""
    with matplotlib.rc_context({"svg.hashsalt": "architecture", "font.family": "DejaVu Sans", "text.color": INK}):
        draw().savefig(TARGET, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
