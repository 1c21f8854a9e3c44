"""How every figure looks: size, type, colours, and a title that says what was measured and what was priced.

Figures are made without pyplot, so nothing global is left behind. Two colours, INK and PAPER, stand for "text" and
"background": the page replaces them by its own, so that one figure serves light, dark and print.
"""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from jaxspec.errors import InputError
from jaxspec.output_places import figure_format
from jaxspec.partial_files import write_bytes

__all__ = [
    "ShownFigure",
    "colour_of",
    "figure_svg",
    "inline_svg",
    "legend_below",
    "limits_from_zero",
    "marker_of",
    "new_axes",
    "new_figure",
    "save_figure",
    "styled",
    "text_colour_on",
    "write_figure",
]

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


STYLE: dict[Any, Any] = dict(
    matplotlib.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
)


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


def new_axes(
    title: str, subtitle: str, *, height_inches: float, grid: Literal["both", "x", "y"] = "both"
) -> tuple[Figure, Axes]:
    """Such a figure with one plot, and its axes. Args: grid: its lines, "both", "x" or "y"."""
    figure = new_figure(title, subtitle, height_inches=height_inches)
    axes = figure.add_subplot()
    axes.grid(True, axis=grid)
    return figure, axes


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


#: Matplotlib writes who made the file and when; neither belongs into a result that should repeat byte for byte.
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def figure_svg(figure: Figure) -> str:
    """The figure as a standalone SVG document, the same text for the same figure."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()


def inline_svg(svg: str, *, prefix: str, label: str) -> str:
    """An SVG document as an element of a page.

    Args:
        svg: what `figure_svg` returned.
        prefix: put before every id that is used, so that figures on one page do not share any; the others go.
        label: what a screen reader says; XML-escaped already.
    Returns:
        The element without prologue and namespaces, in the page's own text and background colours.
    """
    element = svg[re.search(r"<svg\b", svg).start() :]  # pyright: ignore[reportOptionalMemberAccess]
    element = re.sub(r"\s*<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    head, rest = element.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    rest = rest.replace("xlink:href=", "href=")
    # Matplotlib gives everything an id, two equal images even the same one: only those that are used stay.
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', rest))
    rest = re.sub(r' id="([^"]*)"', lambda match: f' id="{prefix}-{match[1]}"' if match[1] in used else "", rest)
    rest = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", rest)
    rest = rest.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    return f'<svg {box[0]} role="img" aria-label="{label}">{rest}'


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure; the suffix of `path` names the format, without one it is PNG.

    Raises:
        InputError: a format or a place that cannot be written.
    """
    try:
        write_figure(figure, path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"plot {str(path)!r} cannot be written ({reason}); give another file") from error


def write_figure(figure: Figure, path: str | Path) -> None:
    """As `save_figure`, for a file of a run directory, which no user named.

    Raises:
        OSError: it cannot be written.
    """
    path, ending = Path(path), figure_format(path)
    # In memory first: a writer of PDF that meets a full disk fails once more where it closes its file, with another error.
    drawn = io.BytesIO()
    figure.savefig(drawn, format=ending)
    write_bytes(path, drawn.getvalue())
