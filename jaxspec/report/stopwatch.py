"""Decoding against the clock, shown: a table for the terminal, one for the page, and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from hwmodels.numerics.units import MILLI
from jaxspec.report.columns import Column, Grid, fill, read_columns
from jaxspec.report.figure_style import INK, PAPER, colour_of, legend_below, limits_from_zero, new_axes, styled
from jaxspec.report.formatting import CONFIGURATIONS, NOT_KNOWN, fixed, in_order
from jaxspec.report.terminal import Table
from jaxspec.results.network_results import (
    LOST_IN_NOISE,
    ClockedWay,
    MeasuredResult,
    Repeated,
    Stopwatch,
)

__all__ = ["stopwatch_figure", "stopwatch_grids", "stopwatch_in_words", "stopwatch_tables"]

#: What is said of times that cannot be believed, and of those that are not known.
_TOO_NOISY = "TOO NOISY to be believed, run it on a quiet machine"
_LOST = f"{NOT_KNOWN}: {LOST_IN_NOISE}"

#: Fewer samples have no noise worth printing.
_FEWEST_REPEATS = 3


def _repeated(name: str, scale: float, digits: int) -> Callable[[ClockedWay], str]:
    """The words of a number that was timed several times: its median and what holds 90 % of the repeats."""

    def words(way: ClockedWay) -> str:
        repeated: Repeated = getattr(way, name)
        parts = [repeated.median.number, repeated.low.number, repeated.high.number]
        middle, low, high = (fixed(None if part is None else part / scale, digits) for part in parts)
        return NOT_KNOWN if middle == NOT_KNOWN else f"{middle} ({low} to {high})"

    return words


#: Numbers that are timed -> unit and digits.
_TIMED = {
    "tokens_per_s": (1.0, 0),
    "speedup": (1.0, 2),
    "cycle_s": (MILLI, 2),
    "draft_step_s": (MILLI, 3),
    "verify_s": (MILLI, 2),
}

#: Numbers of each way, in order.
_COLUMNS: tuple[Column[ClockedWay], ...] = read_columns(
    Path(__file__).with_name("stopwatch.csv"),
    words={name: _repeated(name, *how) for name, how in _TIMED.items()},
    read={name: lambda way, name=name: getattr(way, name).median for name in _TIMED},
)


def _ways(clock: Stopwatch) -> dict[str, ClockedWay]:
    """In printed order: configurations in their own, others by name."""
    return {name: clock.ways[name] for name in in_order(sorted(clock.ways), CONFIGURATIONS)}


def _rows(clock: Stopwatch) -> dict[str, ClockedWay]:
    return {"no speculation": clock.autoregressive} | _ways(clock)


def stopwatch_in_words(clock: Stopwatch) -> str:
    """How the times were taken, and whether they can be believed."""
    noise, load = clock.noise.number, clock.load.number
    said = (
        f"measured on {clock.machine}: {fixed(clock.repeats.number, 0)} repeats of {fixed(clock.prompts.number, 0)} prompts, "
        f"{fixed(clock.batch.number, 0)} together, median and what holds 90 % of the repeats"
    )
    lost = f"; {_LOST}" if any(way.lost for way in _rows(clock).values()) else ""
    if noise is None and (clock.repeats.number or 0) < _FEWEST_REPEATS:
        return f"{said}; too few repeats to tell the noise{lost}"
    sure = f"median speedups are {'not sure at all' if noise is None else f'sure to {100 * noise:.1f} %'}"
    busy = "" if load is None else f" (load per core {load:.1f})"
    return f"{said}; {sure}{busy}" + ("" if clock.believable.value else f": {_TOO_NOISY}") + lost


def stopwatch_tables(results: Sequence[MeasuredResult]) -> list[Table]:
    """A table for each result that was timed."""
    tables = []
    for result in results:
        if (clock := result.stopwatch) is None:
            continue
        name = result.model.name or "the network"
        table = Table(
            f"Stopwatch: {name} decoding on this machine",
            f"{stopwatch_in_words(clock)}\n{clock.statement or ''}".rstrip(),
        )
        fill(table, _COLUMNS, _rows(clock), corner="way")
        tables.append(table)
    return tables


def stopwatch_grids(result: MeasuredResult) -> list[Grid[ClockedWay]]:
    """The same for the page; none where nothing was timed."""
    if (clock := result.stopwatch) is None:
        return []
    return [Grid(_rows(clock), _COLUMNS, f"Stopwatch: {stopwatch_in_words(clock)}; {clock.statement}")]


@styled
def stopwatch_figure(result: MeasuredResult) -> Figure | None:
    """Measured speedups of each way with their intervals, beside the predicted ones; None where nothing was timed."""
    if (clock := result.stopwatch) is None:
        return None
    shown = {name: way for name, way in _ways(clock).items() if way.speedup.median.number is not None}
    if not shown:
        return None
    figure, axes = new_axes("Speed by the clock", stopwatch_in_words(clock), height_inches=3.6, grid="y")
    tops = [1.0]
    for place, (name, way) in enumerate(shown.items()):
        parts = [part.number for part in (way.speedup.median, way.speedup.low, way.speedup.high)]
        median = parts[0] or 0.0
        low, high = (0.0 if parts[1] is None else parts[1]), (median if parts[2] is None else parts[2])
        bars = [[median - low], [high - median]]
        label = "measured" if place == 0 else None
        axes.errorbar(place, median, yerr=bars, fmt="o", color=colour_of(name), markersize=9, capsize=5, label=label)
        tops.append(high)
        if way.predicted is not None and (speedup := way.predicted.speedup.number) is not None:
            label = "predicted" if place == 0 else None
            known = None if way.predicted.intervals is None else way.predicted.intervals.speedup
            low, high = (
                (speedup, speedup) if known is None else (known.low.number or speedup, known.high.number or speedup)
            )
            bars = [[speedup - low], [high - speedup]]
            style = {"color": INK, "markerfacecolor": PAPER, "markersize": 9, "capsize": 5}
            axes.errorbar(place + 0.15, speedup, yerr=bars, fmt="D", label=label, **style)
            tops.append(high)
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle="--", label="no speculation")
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.set_ylim(*limits_from_zero(tops))
    axes.set(xlabel="way to decode", ylabel="speedup over no speculation")
    legend_below(figure, axes)
    return figure
