"""How every figure looks: size, type, colours, and a title that says what was measured and what was priced.

Figures are made without pyplot, so nothing global is left behind. Two colours, INK and PAPER, stand for "text" and
"background": the page replaces them by its own, so that one figure serves light, dark and print.
"""

from __future__ import annotations

import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

INK = "#24292f"
PAPER = "#fffffe"

#: Okabe and Ito's palette, safe for colour-blind readers (jfly.uni-koeln.de/color).
BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
YELLOW, BLUE, VERMILLION, PURPLE = "#f0e442", "#0072b2", "#d55e00", "#cc79a7"

#: Each configuration by colour and by shape.
COLOURS = {"default": VERMILLION, "j_grid": SKY, "grid": BLUE, "uniform": GREEN, "tuned": PURPLE}
MARKERS = {"default": "s", "j_grid": "P", "grid": "D", "uniform": "^", "tuned": "o"}
OTHER_COLOUR, OTHER_MARKER = ORANGE, "v"

WIDTH_INCHES = 9.0
_MARGIN_INCHES = 0.12
_TITLE_INCHES, _LINE_INCHES = 0.34, 0.19
_LINE_CHARACTERS = 118

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "figure.dpi": 100.0,
    "figure.edgecolor": PAPER,
    "figure.facecolor": PAPER,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "grid.linewidth": 0.6,
    "legend.edgecolor": "none",
    "legend.facecolor": "none",
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    # Text as outlines: a figure looks the same wherever it is opened.
    "svg.fonttype": "path",
    # Fixed, so that the same result gives the same file.
    "svg.hashsalt": "jaxspec",
}

P = ParamSpec("P")
Drawn = TypeVar("Drawn", bound="Figure | None")


def styled(draw: Callable[P, Drawn]) -> Callable[P, Drawn]:
    """Make a figure under `STYLE`, whatever the caller's settings of matplotlib are, and leave those as they were."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Drawn:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapper


class ShownFigure(Figure):
    """A figure that a notebook shows as a picture, although pyplot, which would arrange that, does not know of it."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()


def new_figure(title: str, subtitle: str, *, height_inches: float) -> Figure:
    """An empty figure, 900 px wide at 100 dpi, with its title in place and the rest of the height free."""
    lines = textwrap.wrap(subtitle, _LINE_CHARACTERS)
    head_inches = _TITLE_INCHES + _LINE_INCHES * len(lines) + 0.08
    height_inches += head_inches
    figure = ShownFigure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0.0, 0.0, 1.0, 1.0 - head_inches / height_inches), w_pad=0.06, h_pad=0.06)  # pyright: ignore[reportCallIssue]
    place = {"x": _MARGIN_INCHES / WIDTH_INCHES, "ha": "left", "va": "top"}
    figure.text(y=1.0 - 0.1 / height_inches, s=title, fontsize=12.5, fontweight="bold", **place)
    figure.text(y=1.0 - _TITLE_INCHES / height_inches, s="\n".join(lines), fontsize=9.0, linespacing=1.3, **place)
    return figure


def legend_below(figure: Figure, axes: Axes, *, columns: int = 4, **keywords) -> None:
    """The legend of `axes` under the plot, where it hides no data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, max(len(labels), 1)), **keywords)


def limits_from_zero(values: Iterable[float], *, room: float = 1.08) -> tuple[float, float]:
    """Limits of an axis that begins at 0 and shows all of these values, those that are not finite apart.

    Matplotlib's own take the edge of a thin bar for the beginning of a stack, and leave out the zero.

    Args:
        room: end of the axis over the largest value.
    """
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    return 0.0, room * top if top > 0 else 1.0


def colour_of(configuration: str) -> str:
    """A configuration's colour."""
    return COLOURS.get(configuration, OTHER_COLOUR)


def marker_of(configuration: str) -> str:
    """A configuration's shape."""
    return MARKERS.get(configuration, OTHER_MARKER)


def text_colour_on(background) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = to_rgb(background)
    # Rec. 709 luma; above the middle grey black reads better.
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "#ffffff"
