"""What `jaxspec sweep` shows: its table and its figure of Pareto fronts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxspec.errors import InputError
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    new_figure,
    styled,
    write_figure,
)
from jaxspec.report.formatting import quantity, scale_of
from jaxspec.report.page import Drawings, Page, Section, write_page
from jaxspec.report.terminal import Shown, Table, note_lines
from jaxspec.results.network_results import PricedNumber
from jaxspec.results.records import significant
from jaxspec.studies.given_acceptance import law_line
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.points_file import read_pieces, read_sweep
from jaxspec.studies.sweep.result import SweepResult

_ROWS = 20


def sweep_table(result: SweepResult) -> Table:
    """The Pareto front, at most twenty of its points, evenly taken."""
    axes, rows = result.pareto.axes, result.pareto.points
    results = ("draft_length", "speedup_vs_bf16_ar", "tokens_per_s")
    third = [axes.z] if axes.z else []
    divided = [*axes.group, *([axes.facets] if axes.facets else [])]
    names = list(dict.fromkeys([*divided, axes.x, axes.y, *third, *_varied(rows), *results]))
    count = max(result.pareto.count, len(rows))
    table = Table(
        title=f"Pareto front: {axes.better_x} {axes.x}, {axes.better_y} {axes.y}"
        + (f", {axes.better_z} {axes.z}" if axes.z else "")
        + (f", for each {' and '.join(dict.fromkeys(divided))}" if divided else ""),
        caption=f"{count:,} of {result.points:,} points, of which {result.points_that_fit:,} fit their memory "
        "(axes: input; results: predicted)"
        + (f"\nin brackets: {result.interval_statement}" if result.interval_statement else ""),
    )
    scales = {name: _scale(name, [row[name] for row in rows]) for name in names}
    for name, (_, unit) in scales.items():
        table.add_column(f"{name}, {unit}" if unit else name, justify="right")
    step = max(1, -(-len(rows) // _ROWS))
    for row in rows[::step]:
        table.add_row(*(_cell(row[name], scale) + _ends(row, name, scale) for name, (scale, _) in scales.items()))
    return table


def _scale(name: str, values: Sequence[Any]) -> tuple[float, str]:
    """Scale and unit of a column, in which its least number but 0 is 1 or more."""
    sizes = [abs(value) for value in values if isinstance(value, (int, float)) and value]
    return scale_of(name, min(sizes)) if sizes else (1.0, "")


def _cell(value: object, scale: float) -> str:
    return significant(value / scale, 5) if isinstance(value, (int, float)) else str(value)


def _ends(row: dict[str, Any], name: str, scale: float) -> str:
    """The interval of a result, as in " [1.9, 2.1]"; empty where a point has none."""
    ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
    known = [end for end in ends if isinstance(end, float) and math.isfinite(end)]
    return f" [{', '.join(significant(end / scale, 4) for end in known)}]" if len(known) == 2 else ""


def _axes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Columns of axes, which have dots in their names, or those of networks and devices; results have none."""
    return [name for name in (rows[0] if rows else {}) if "." in name or name in ("architecture", "device")]


def _varied(rows: list[dict[str, Any]]) -> list[str]:
    """Columns of axes that differ along the front."""
    return [name for name in _axes(rows) if len({row[name] for row in rows}) > 1]


def shown(result: SweepResult) -> Shown:
    """The table of a sweep for the terminal, and where its files are."""
    where = f"{result.points:,} points in {result.directory}/sweep.parquet; report: {result.directory}/report.html"
    first = [law_line(result.acceptance)]
    return Shown(result.plain(), [sweep_table(result)], [*note_lines([result]), where], first=first)


#: Where a run directory has its figure.
FRONT_FILE = "figures/pareto.png"


#: Colours of groups, the front of an undivided sweep first.
_COLOURS = (VERMILLION, GREEN, PURPLE, ORANGE, SKY)


#: Panels in a row, and in all: more are too small to read.
_ACROSS, _PANELS = 3, 24


@styled
def pareto_figure(front: ParetoFront) -> Figure | None:
    """The fronts of the design points that fit, and a sample of the others; a third result is a colour."""
    rows, cloud, names = front.rows(), front.cloud(), front.columns
    panels = _values(rows, front.facets)
    if len(panels) > _PANELS:
        raise InputError(f"pareto.facets {front.facets} has {len(panels)} values; allowed are 1 to {_PANELS} panels")
    better = ", ".join(f"{front.axes[f'better_{key}']} {name}" for key, name in zip("xyz", names))
    divided = f"; by {', '.join(front.groups)}" if front.groups else ""
    down = -(-len(panels) // _ACROSS)
    figure = new_figure(
        f"{names[1]} against {names[0]}",
        f"{front.seen:,} design points (axes: input; results: predicted), of which {front.fitting:,} fit their memory and "
        f"are shown; better: {better}; {front.count:,} points that no other beats{divided}",
        height_inches=5.0 if len(panels) == 1 else 3.4 * down,
    )
    scales = [scale_of(name, _largest(rows, cloud, name)) for name in names]
    shape = {"nrows": down, "ncols": min(_ACROSS, len(panels)), "squeeze": False, "sharex": True, "sharey": True}
    axes: list[Axes] = list(np.ravel(figure.subplots(**shape)))
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    coloured, drawn = None, len(cloud[names[0]])
    # Many points are a cloud whose density shows; few are to be seen one by one.
    size, opacity = np.clip([90.0, 10.0] / np.sqrt(max(drawn, 1)), (2.5, 0.35), (9.0, 0.9))
    label = "design points" + (" (a sample)" if drawn < front.fitting else "")
    for place, value in enumerate(panels):
        here = [row for row in rows if value is None or row[str(front.facets)] == value]
        near = np.ones(len(cloud[names[0]]), bool) if value is None else cloud[str(front.facets)] == value
        x, y = (cloud[name][near].astype(float) / scale for name, (scale, _) in zip(names[:2], scales))
        axes[place].plot(x, y, ".", color=BLUE, markersize=size, alpha=opacity, label=label)
        coloured = _fronts(axes[place], front, here, scales) or coloured
        if value is not None:
            axes[place].set_title(f"{_short(str(front.facets))} {_word(str(front.facets), value)}", fontsize=9)
        axes[place].grid(True, which="both", color=INK)
    _arrange(axes[: len(panels)], rows, cloud, names, scales)
    if coloured is not None:
        figure.colorbar(coloured, ax=axes, label=_label(names[2], scales[2][1]))
    if len(panels) == 1:
        axes[0].legend()
    else:
        legend_below(figure, axes[0])
    return figure


def _fronts(axes: Axes, front: ParetoFront, rows: list[dict[str, Any]], scales: Sequence[tuple[float, str]]) -> Any:
    """A line for each group; of three results, points by colour."""
    names, drawn = front.columns, None
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in front.group), []).append(row)
    for i, (key, members) in enumerate(groups.items()):
        columns = [
            np.array([row[name] for row in members], float) / scale
            for name, (scale, _) in zip(names, scales, strict=True)
        ]
        words = ", ".join(f"{_short(n)} {_word(n, v)}" for n, v in zip(front.group, key, strict=True)) or "front"
        if len(names) == 3:
            shown = axes.scatter(columns[0], columns[1], c=columns[2], s=14, cmap="viridis", label=words)
            drawn = drawn or shown
        else:
            colour = _COLOURS[i % len(_COLOURS)]
            style = ("-", "--", ":")[i // len(_COLOURS) % 3]
            axes.plot(
                columns[0], columns[1], "o", linestyle=style, color=colour, markersize=4, linewidth=1.2, label=words
            )
    if not groups:
        axes.plot([], [], "o-", color=_COLOURS[0], markersize=4, linewidth=1.2, label="front")
    return drawn


def _arrange(
    axes: Sequence[Axes],
    rows: list[dict],
    cloud: dict[str, np.ndarray],
    names: list[str],
    scales: Sequence[tuple[float, str]],
) -> None:
    for i, name in enumerate(names[:2]):
        front = np.array([row[name] for row in rows], float)
        # Of the cloud too: a point at 0 has no place on a logarithmic axis.
        positive = len(front) and front.min() > 0 and not np.any(cloud[name] <= 0)
        if positive and front.max() > 20 * front.min():
            (axes[0].set_xscale if i == 0 else axes[0].set_yscale)("log")
    for one in axes:
        one.set_xlabel(_label(names[0], scales[0][1]))
    for one in axes[::_ACROSS]:
        one.set_ylabel(_label(names[1], scales[1][1]))


def _largest(rows: list[dict[str, Any]], cloud: dict[str, np.ndarray], name: str) -> float:
    values = np.abs(np.concatenate([np.array([row[name] for row in rows], float), cloud[name].astype(float)]))
    values = values[np.isfinite(values)]
    return float(values.max()) if values.size else 0.0


def _values(rows: list[dict[str, Any]], name: str | None) -> list[Any]:
    choices = [None] if name is None else list(dict.fromkeys(row[name] for row in rows))
    return choices or [None]


def _label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _word(name: str, value: Any) -> str:
    return value if isinstance(value, str) else quantity(name, float(value)) if "." in name else f"{value:g}"


def figures(result: SweepResult, directory: Path | None = None) -> Drawings:
    """The figure of a sweep by name; its points come from the directory."""
    return {"pareto": lambda: pareto_figure(_front(result, Path(directory or result.directory)))}


def _front(result: SweepResult, directory: Path) -> ParetoFront:
    front = ParetoFront(**vars(result.pareto.axes))
    for columns in read_pieces(directory):
        front.add(columns)
    return front


def points(result: SweepResult) -> dict[str, np.ndarray]:
    """Columns of all design points."""
    return read_sweep(result.directory)


class _Swept(NamedTuple):
    """All networks and devices of a sweep as the record that a section of a page is about."""

    architecture: str
    device: str
    device_data: dict[str, PricedNumber]
    assumptions: list[str]


_PAGE = Page.read(__file__)


def _best_table(result: SweepResult) -> Table:
    """For each result the point that has the most of it."""
    axes = _axes(list(result.best.values()))
    table = Table(title="The most of each result, predicted, and where: axes, input")
    table.add_columns("result", "value", *axes)
    for name, point in result.best.items():
        words = [
            quantity(column, value) if isinstance(value := point[column], float) else str(value)
            for column in (name, *axes)
        ]
        table.add_row(name, *words)
    return table


def write_sweep_report(result: dict[str, Any], folder: Path) -> None:
    """Write the figure and `report.html` of a run, once its result is there: a page that fails takes no result with it.

    Args:
        result: as result.json has it.
    Raises:
        OSError: they cannot be written.
    """
    swept = SweepResult.from_plain(result)
    figure = figures(swept, folder)["pareto"]()
    assert figure is not None
    write_figure(figure, folder / FRONT_FILE)
    front = swept.pareto.axes
    data = {f"{name}: {field}": number for name, of in swept.device_data.items() for field, number in of.items()}
    record = _Swept(", ".join(swept.architecture_data), ", ".join(swept.device_data), data, swept.notes)
    counts = f"{swept.points:,} design points, of which {swept.points_that_fit:,} fit their memory"
    section = Section(
        result=record,
        title=f"{front.better_x} {front.x}, {front.better_y} {front.y}",
        headlines=[f"{counts}; {swept.pareto.count:,} are beaten by no other in both {front.x} and {front.y}."],
        pays=swept.points_that_fit > 0,
        provenance=law_line(swept.acceptance) or "",
        tables=[_best_table(swept), sweep_table(swept)],
        figures={"pareto": lambda: figure},
    )
    write_page(_PAGE, [section], folder)
