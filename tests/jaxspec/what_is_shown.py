"""Checks of what a person sees: every number of a table whole, all data of a figure within its axes, all text on its canvas."""

import io
import re
from collections import Counter

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.cells import cell_len
from rich.console import Console

from jaxspec.report.terminal import show

#: A number as a table may show it.
NUMBER = re.compile(r"[-+−±]?\d[\d.,]*(?:[eE][-+]?\d+)?[x%]?")

#: The last one is a pipe's.
WIDTHS = (60, 80, 100, 120, 1_000_000)


def printed(table, width):
    """What a terminal of this width shows."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(table, console=console)
    return console.file.getvalue()


def numbers_are_whole(table, widths=WIDTHS):
    """Every number of every cell, of the title and of the caption stands uncut in the output, at every width."""
    cells = [cell for row in table.rows for cell in row.cells]
    expected = Counter(NUMBER.findall("\n".join([*cells, table.title.plain, table.caption.plain])))
    words = Counter(word for cell in cells for word in cell.split() if len(word) <= 20)
    for width in widths:
        text = printed(table, width)
        lost = expected - Counter(NUMBER.findall(text))
        assert not lost, (width, lost, text)
        lost = words - Counter(text.split()) if width != min(widths) else Counter()
        assert not lost, (width, lost, text)
        assert "…" not in text
        for line in text.splitlines():
            assert cell_len(line) <= width or " " not in line.strip(), (width, line)


def figures_of(figure):
    """A figure with the figures within it."""
    yield figure
    for part in figure.subfigs:
        yield from figures_of(part)


def texts_shown(figure):
    """All visible text: tick labels beyond an axis' ends exist as objects, but are not drawn."""
    for part in figures_of(figure):
        yield from part.texts
        yield from [part._suptitle] if part._suptitle else []
        for found in part.legends:
            yield from found.get_texts()
        for axes in part.axes if not part.subfigs else []:
            yield from axes.texts
            yield axes.title
            yield from axes.get_legend().get_texts() if axes.get_legend() else []
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                yield axis.label
                for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                    if low <= tick.get_loc() <= high:
                        yield from (tick.label1, tick.label2)


def _data_of(axes):
    """Points of everything that is drawn in an axes' own coordinates: "point 2", NaN where one of them is not."""
    along_x, along_y = axes.get_yaxis_transform(which="grid"), axes.get_xaxis_transform(which="grid")
    for line in axes.lines:
        points = np.array(line.get_xydata(), float)
        if line.get_transform() == along_x:
            points[:, 0] = np.nan
        elif line.get_transform() == along_y:
            points[:, 1] = np.nan
        yield points
    for patch in axes.patches:
        if isinstance(patch, matplotlib.patches.Rectangle):
            corner = np.array(patch.get_xy())
            yield np.stack([corner, corner + np.array([patch.get_width(), patch.get_height()])])
    for found in axes.collections:
        if found.get_offset_transform() == axes.transData:
            yield np.ma.filled(np.ma.asarray(found.get_offsets(), float), np.nan)
        elif hasattr(found, "get_segments"):
            yield from found.get_segments()


def all_is_shown(figure):
    """All data lies within the limits of its axes, and all text on the canvas."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for part in figures_of(figure):
        for axes in part.axes if not part.subfigs else []:
            for points in _data_of(axes):
                for values, interval, scale in zip(
                    np.atleast_2d(points).T,
                    (axes.get_xlim(), axes.get_ylim()),
                    (axes.get_xscale(), axes.get_yscale()),
                    strict=True,
                ):
                    low, high = sorted(interval)
                    values = values[np.isfinite(values)]
                    room = 1e-9 * (high - low)
                    assert np.all((low - room <= values) & (values <= high + room)), (
                        axes.get_title(),
                        values,
                        interval,
                    )
                    assert scale != "log" or np.all(values > 0), axes.get_title()
    for text in texts_shown(figure):
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent(canvas.get_renderer())
            inside = figure.bbox.padded(1.5)
            corners = [(box.x0, box.y0), (box.x1, box.y1)]
            assert all(inside.contains(*corner) for corner in corners), (text.get_text(), box, figure.bbox)
