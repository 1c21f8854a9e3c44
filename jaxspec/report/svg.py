"""A figure as SVG: a file of its own, or a part of a page."""

from __future__ import annotations

import io
import re

import matplotlib
from matplotlib.figure import Figure

from jaxspec.report.figures.style import INK, PAPER, STYLE

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
    rest = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}-{found[1]}"' if found[1] in used else "", rest)
    rest = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", rest)
    rest = rest.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    return f'<svg {box[0]} role="img" aria-label="{label}">{rest}'
