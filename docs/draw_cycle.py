"""Draws a draft-verify cycle, the picture of the primer: `python docs/draw_cycle.py` writes `docs/images/cycle.svg`.

The background is light and opaque, so that the picture is read alike on light and on dark pages.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, PAPER, VERMILLION

TARGET = Path(__file__).parent / "images" / "cycle.svg"

_WIDTH, _HEIGHT = 9.0, 3.9

#: The text so far, what the draft proposes, how many of these are accepted, and what the target writes in their place.
_TEXT, _DRAFTED, _ACCEPTED, _OWN = ("The", "cat", "sat"), ("on", "the", "mat", "all"), 3, "and"

#: A token's box: width, height, and distance between the left edges of neighbours.
_BOX, _TALL, _PITCH = 0.72, 0.4, 0.82

#: Left edges of the first token, and of the time lines; seconds do not matter, only that draft steps are shorter.
_LEFT = 1.85
_STEP, _DRAFT_STEP = 1.3, 0.32


def _box(
    axes: Axes, left: float, low: float, width: float, colour: str, text: str = "", *, filled: float = 0.2
) -> None:
    shape = dict(boxstyle="round,pad=0,rounding_size=0.06", linewidth=1.2)
    axes.add_patch(FancyBboxPatch((left, low), width, _TALL, facecolor=(colour, filled), edgecolor=colour, **shape))
    axes.text(left + width / 2, low + _TALL / 2 - 0.01, text, ha="center", va="center", fontsize=12)


def _say(axes: Axes, x: float, y: float, text: str, *, size: float = 12.0, **more: object) -> None:
    axes.text(x, y, text, fontsize=size, va="center", **more)


def _place(number: int) -> float:
    """Left edge of a token's box by its position in the text."""
    return _LEFT + number * _PITCH


def _tokens(axes: Axes) -> None:
    rows = {"draft": 3.35, "target": 2.75, "output": 2.15}
    for name, low in rows.items():
        heading = {"draft": "1  draft proposes", "target": "2  target checks", "output": "3  text goes on"}[name]
        _say(axes, 0.12, low + _TALL / 2, heading, weight="bold")
    for number, word in enumerate(_TEXT):
        for low in rows.values():
            _box(axes, _place(number), low, _BOX, INK, word, filled=0.04)
    for number, word in enumerate(_DRAFTED):
        left, accepted = _place(len(_TEXT) + number), number < _ACCEPTED
        _box(axes, left, rows["draft"], _BOX, ORANGE, word)
        colour = GREEN if accepted else VERMILLION
        _box(axes, left, rows["target"], _BOX, colour, f"{word}  {'✓' if accepted else '✗'}")
        if accepted:
            _box(axes, left, rows["output"], _BOX, GREEN, word)
    _box(axes, _place(len(_TEXT) + _ACCEPTED), rows["output"], _BOX, BLUE, _OWN)
    right = _place(len(_TEXT) + len(_DRAFTED)) + 0.02
    _say(axes, right, rows["draft"] + _TALL / 2, "four short steps")
    _say(axes, right, rows["target"] + _TALL / 2, "one step for all")
    _say(axes, right, rows["output"] + _TALL / 2, "4 tokens more")


def _times(axes: Axes) -> None:
    _say(axes, 0.12, 1.62, "Time for these 4 tokens", weight="bold")
    gained, low = _ACCEPTED + 1, 0.88
    _say(axes, 0.12, low + _TALL / 2, "target alone")
    for number in range(gained):
        _box(axes, _LEFT + number * _STEP, low, _STEP - 0.06, BLUE, "target step")
    low = 0.3
    _say(axes, 0.12, low + _TALL / 2, "with a draft")
    for number in range(len(_DRAFTED)):
        _box(axes, _LEFT + number * _DRAFT_STEP, low, _DRAFT_STEP - 0.05, ORANGE)
    verified = _LEFT + len(_DRAFTED) * _DRAFT_STEP
    _box(axes, verified, low, _STEP + 0.04, BLUE, "target step")
    _say(axes, verified + _STEP + 0.15, low + _TALL / 2, "one cycle; the same text, sooner")


def draw() -> Figure:
    """The picture."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(0, _HEIGHT)
    axes.axis("off")
    _tokens(axes)
    _times(axes)
    return figure


def main() -> None:
    """Write the picture; the same bytes every time."""
    with matplotlib.rc_context({"svg.hashsalt": "cycle", "font.family": "DejaVu Sans", "text.color": INK}):
        draw().savefig(TARGET, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
