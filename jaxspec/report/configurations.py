"""Configurations of a draft, shown: their numbers on a page and in a terminal, and figures of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from hwmodels.numerics.units import MICRO, MILLI, TERA
from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.partial_files import read_toml_beside
from jaxspec.report.assumptions import device_data
from jaxspec.report.columns import (
    BRACKETS,
    NO_STATUS,
    Column,
    column_statuses,
    fill,
    read_columns,
    statements,
    terminal_columns,
)
from jaxspec.report.figure_style import (
    INK,
    PAPER,
    colour_of,
    legend_below,
    new_axes,
    new_figure,
    styled,
    text_colour_on,
)
from jaxspec.report.formatting import (
    NOT_KNOWN,
    architecture_title,
    configurations,
    device_title,
    in_order,
    provenance,
    quantity,
    times,
)
from jaxspec.report.terminal import Table
from jaxspec.results import Quantity
from jaxspec.results.network_results import CategoryCycles, Configuration, ConfigurationsResult
from jaxspec.results.records import finite

__all__ = [
    "LARGEST_GAP",
    "OPERATOR_COLOURS",
    "PAGE_COLUMNS",
    "SpeedRatio",
    "category_table",
    "defects",
    "gap_in_standard_errors",
    "headline",
    "operator_time_figure",
    "ratio",
    "roofline_figure",
    "tables",
    "tokens_figure",
    "verdict",
]

#: A gap between predicted and counted tokens per cycle beyond this many standard errors is a defect.
LARGEST_GAP = 3.0


#: Rows of the page's table.
PAGE_COLUMNS: tuple[Column[Configuration], ...] = read_columns(Path(__file__).with_name("configurations.csv"))


#: Columns of the terminal's table, which fit into 80 characters.
TERMINAL_COLUMNS = terminal_columns(PAGE_COLUMNS)


def gap_in_standard_errors(configuration: Configuration) -> float | None:
    """How far the counted tokens per cycle lie from the predicted ones, in standard errors."""
    given = configuration.tokens_per_cycle_gap_in_standard_errors.number
    if given is not None:
        return abs(given)
    expected, counted = configuration.tokens_per_cycle_predicted.number, configuration.tokens_per_cycle_counted.number
    error = configuration.tokens_per_cycle_counted.standard_error
    if expected is None or counted is None or not error:
        return None
    return abs(counted - expected) / error


def defects(gaps: Mapping[str, float | None]) -> list[str]:
    """A line that names drafts whose counted tokens per cycle are too far from the predicted ones, where there are any."""
    large = [f"{name} {gap:.1f}" for name, gap in gaps.items() if gap is not None and gap > LARGEST_GAP]
    said = f"DEFECT: tokens per cycle predicted and counted differ by more than {LARGEST_GAP:.0f} standard errors"
    return [f"{said}: {', '.join(large)}"] if large else []


#: Speedups come from float32; two that differ by less are equal.
_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class SpeedRatio:
    """How much faster one configuration is than another, with its interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the interval, where there is one, leaves out 1."""
        return self.low is None or self.high is None or not self.low <= 1.0 <= self.high

    @property
    def interval(self) -> str:
        """The interval in words; empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} to {self.high:.2f}"

    def __str__(self) -> str:
        return times(self.value) + (f" ({self.interval})" if self.interval else "")


def ratio(result: ConfigurationsResult, other: str) -> SpeedRatio | None:
    """Predicted speed of the tuned configuration over another's; from the speedups where the entry holds no ratio."""
    given = result.ratios.get(f"tuned_vs_{other}")
    if given is not None and given.ratio.number is not None:
        return SpeedRatio(given.ratio.number, given.low.number, given.high.number)
    tuned, others = (
        result.configurations.get(name, Configuration()).speedup_vs_bf16_ar.number for name in ("tuned", other)
    )
    return SpeedRatio(tuned / others) if tuned is not None and others else None


@dataclasses.dataclass(frozen=True)
class Answer:
    """Whether to speculate at all.

    Attributes:
        best: the fastest configuration; None where no speedup is known.
        speedup: its speedup over 16-bit autoregressive decoding.
        stored_speedup: the same of autoregressive decoding, in the fastest of the configurations' stored formats.
        pays: whether the fastest configuration beats that, and 16-bit decoding.
    """

    best: str | None
    speedup: float | None
    stored_speedup: float | None
    pays: bool

    @property
    def choice(self) -> str:
        """The draft that pays, in a word."""
        if self.best is None:
            return NOT_KNOWN
        return self.best if self.pays else "none"


def verdict(result: ConfigurationsResult) -> Answer:
    """Compare the fastest draft with plain decoding of what is stored."""
    speedups, stored = {}, []
    for name, configuration in configurations(result).items():
        speedup = configuration.speedup_vs_bf16_ar.number
        if speedup is None:
            continue
        speedups[name] = speedup
        relative = configuration.speedup_vs_stored_ar.number
        bf16_s, stored_s = configuration.cycle.ar_bf16_s.number, configuration.cycle.ar_stored_s.number
        if bf16_s and stored_s:
            stored.append(bf16_s / stored_s)
        elif relative:
            stored.append(speedup / relative)
    if not speedups:
        return Answer(best=None, speedup=None, stored_speedup=None, pays=False)
    best = max(speedups, key=lambda name: (speedups[name], name == "tuned"))
    bar = max([1.0, *stored]) * (1.0 + _TOLERANCE)
    return Answer(best, speedups[best], max(stored, default=None), pays=speedups[best] > bar)


def headline(result: ConfigurationsResult) -> str:
    """The device's answer in one or two plain sentences."""
    where, answer = f"{architecture_title(result)} on {device_title(result)}", verdict(result)
    if answer.speedup is None:
        return f"{where}: no speedup is known."
    if not answer.pays:
        sentence = (
            f"{where}: no draft pays here. The best one ({answer.best}) is predicted to decode "
            f"{times(answer.speedup)} as fast as 16-bit autoregressive decoding"
        )
        if answer.stored_speedup is None:
            return sentence + "."
        return f"{sentence}; plain decoding of a stored format reaches {times(answer.stored_speedup)}."
    tuned = result.configurations.get("tuned", Configuration())
    chosen = "tuned" if tuned.speedup_vs_bf16_ar.number is not None else str(answer.best)
    speedup = result.configurations[chosen].speedup_vs_bf16_ar.number
    stored = result.configurations[chosen].speedup_vs_stored_ar.number
    sentence = (
        f"{where}: the {chosen} draft is predicted to decode {times(speedup)} as fast as 16-bit autoregressive decoding"
    )
    if stored is not None:
        sentence += f" and {times(stored)} as fast as decoding of its own stored format"
    if chosen != "tuned":
        return sentence + "."
    named = {"grid": "the best grid point", "default": "the default"}
    compared = {name: gain for name in named if (gain := ratio(result, name)) is not None}
    parts = [
        f"{gain} the speed of {named[name]}{'' if gain.clear else ' (no clear difference)'}"
        for name, gain in compared.items()
    ]
    return f"{sentence}; that is {' and '.join(parts)}." if parts else f"{sentence}."


#: Columns of the table by category.
_BY_CATEGORY = tuple(
    Column[CategoryCycles](heading, "", field, write, page_title=heading.replace("\n", " "))
    for heading, field, write in (
        ("prompts", "prompts", 0),
        ("alpha\ntoken", "alpha_token", 3),
        ("tokens\nper cycle\npredicted", "tokens_per_cycle_predicted", 2),
        ("tokens\nper cycle\ncounted", "tokens_per_cycle_counted", 2),
        ("speedup\nvs\nbf16\nAR", "speedup_vs_bf16_ar", times),
    )
)


def tables(results: Sequence[ConfigurationsResult]) -> list[Table]:
    """The terminal's tables for all devices, in order, each with its table by category where prompts have categories; a summary
    comes last where there are several devices."""
    of_devices = [table for result in results for table in (device_table(result), category_table(result)) if table]
    return of_devices + ([summary_table(results)] if len(results) > 1 else [])


def device_table(result: ConfigurationsResult) -> Table:
    """The configurations of one device, a row each; the fastest one is bold where a draft pays.

    The caption gives each column's status, what was measured and priced, and any gap between the two counts of tokens
    per cycle that is too large.
    """
    answer = verdict(result)
    remark = "" if answer.pays or answer.speedup is None else ": no draft pays here"
    table = Table(f"{architecture_title(result)} on {device_title(result)}{remark}", _caption(result))
    shown = configurations(result)
    bold = lambda configuration: "bold" if answer.pays and configuration is shown[answer.best or ""] else None
    return fill(table, TERMINAL_COLUMNS, shown, bold, corner="draft")


def category_table(result: ConfigurationsResult) -> Table | None:
    """A row for each category of the held-out prompts and each configuration; None where prompts have no categories."""
    shown = configurations(result)
    categories = dict.fromkeys(name for each in shown.values() for name in each.by_category)
    if not categories:
        return None
    table = Table(
        f"By category of the prompts, on {device_title(result)}",
        "measured: alpha token, tokens per cycle counted; predicted: tokens per cycle predicted, speedup",
    )
    for heading in ("category", "draft"):
        table.add_column(heading)
    for column in _BY_CATEGORY:
        table.add_column(column.heading, justify="right")
    for category in categories:
        for name, configuration in shown.items():
            cells = [column.text(configuration.by_category[category]).replace(" ± ", "±") for column in _BY_CATEGORY]
            table.add_row(category, name, *cells)
    return table


def summary_table(results: Sequence[ConfigurationsResult]) -> Table:
    """One row per device: what tuning gains there."""
    table = Table("All devices", "predicted: all numbers; each ratio's interval stands under it")
    table.add_columns("device", "tuned vs\nbf16 AR", "tuned vs\nstored AR", "tuned vs\ngrid", "tuned vs\ndefault")
    table.add_column("draft\nthat pays")
    for result in results:
        answer, tuned = verdict(result), result.configurations.get("tuned", Configuration())
        ratios = [ratio(result, other) for other in ("grid", "default")]
        table.add_row(
            device_title(result),
            times(tuned.speedup_vs_bf16_ar.number),
            times(tuned.speedup_vs_stored_ar.number),
            *(f"{times(gain.value)}\n{gain.interval}".rstrip() if gain else NOT_KNOWN for gain in ratios),
            answer.choice,
        )
    return table


def _caption(result: ConfigurationsResult) -> str:
    shown = configurations(result)
    by_status: dict[str, list[str]] = {}
    for column in TERMINAL_COLUMNS:
        if statuses := column_statuses(column, shown.values()):
            by_status.setdefault(statuses, []).append(column.heading.replace("\n", " "))
    lines = [f"{status}: {', '.join(columns)}" for status, columns in by_status.items()]
    gaps = {name: gap_in_standard_errors(configuration) for name, configuration in shown.items()}
    lines += defects(gaps)
    held = statements(each.intervals for each in shown.values())
    return "\n".join([*lines, *(f"{BRACKETS}{words}" for words in held), provenance(result)])


#: Of operators in a step.
OPERATOR_COLOURS: dict[str, str] = read_toml_beside(__file__, "colours.toml")["operators"]


_OTHER = "#404040"


#: A segment shorter than this share of the axis has no room for its name.
_SHARE_WITH_NAME = 0.055


@styled
def operator_time_figure(
    result: ConfigurationsResult, compared: tuple[str, ...] = ("default", "tuned")
) -> Figure | None:
    """Stacked bars of the time per operator: an uncompressed AR step, and draft step and verification of two drafts."""
    bars = _bars(result, compared)
    if not bars:
        return None
    longest_s = max(sum(parts.values()) for parts in bars.values())
    scale, unit = (MILLI, "ms") if longest_s >= MILLI else (MICRO, "µs")
    figure, axes = new_axes("Time per operator", provenance(result), height_inches=1.5 + 0.55 * len(bars), grid="x")
    axes.set_axisbelow(True)
    labelled = set()
    operators = in_order({name: None for parts in bars.values() for name in parts}, STEP_PARTS)
    for row, parts in enumerate(bars.values()):
        left = 0.0
        for operator in operators:
            width = parts.get(operator, 0.0)
            if width <= 0:
                continue
            colour = OPERATOR_COLOURS.get(operator, _OTHER)
            bar = {"height": 0.72, "color": colour, "edgecolor": PAPER, "linewidth": 0.6}
            label = None if operator in labelled else operator
            axes.barh(row, width / scale, left=left / scale, label=label, **bar)
            labelled.add(operator)
            if width > _SHARE_WITH_NAME * longest_s and len(operator) * 0.014 * longest_s < width:
                centred = {"ha": "center", "va": "center", "fontsize": 8.5, "color": text_colour_on(colour)}
                axes.text((left + width / 2) / scale, row, operator, **centred)
            left += width
        total = f"{left / scale:#.3g}".rstrip(".")
        axes.text((left + 0.008 * longest_s) / scale, row, f"{total} {unit}", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.1 * longest_s / scale)
    axes.set_xlabel(f"time of one step ({unit}, predicted)")
    axes.tick_params(axis="y", length=0)
    legend_below(figure, axes, columns=6)
    return figure


def _bars(result: ConfigurationsResult, compared: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Label -> operator -> seconds, longest kind of step first; bars without any time are left out."""
    by_name = configurations(result)
    chosen = {name: by_name[name] for name in compared if name in by_name}
    plain = next((parts for each in by_name.values() if (parts := _seconds(each, "ar_bf16"))), {})
    bars = {"AR step, bf16": plain}
    for name, configuration in chosen.items():
        length = configuration.draft_length.number
        times = "" if length is None else f" ({length:.0f} per cycle)"
        bars[f"draft step, {name}{times}"] = _seconds(configuration, "draft")
    for name, configuration in chosen.items():
        bars[f"verification, {name}"] = _seconds(configuration, "verify")
    return {label: parts for label, parts in bars.items() if sum(parts.values()) > 0}


def _seconds(configuration: Configuration, step: str) -> dict[str, float]:
    """Operator -> seconds of a step, those that are known."""
    times = (configuration.operators.value or {}).get(step) or {}
    return {operator: seconds for operator, time in times.items() if (seconds := finite(time)) is not None}


#: Step -> shape and what it is called.
_STEPS = {"ar_bf16": ("*", "AR step, bf16"), "draft": ("o", "draft step"), "verify": ("s", "verification")}


@styled
def roofline_figure(result: ConfigurationsResult) -> Figure | None:
    """FLOP/s against FLOP per byte, both logarithmic: the roof that the device reaches, and every step under it."""
    numbers = device_data(result)
    data = {number.field: number.value for number in numbers}
    statuses = {number.field: number.status for number in numbers}
    try:
        compute_flops_per_s = data["peak_flops_per_s"] * data.get("compute_efficiency", 1.0)
        memory_bytes_per_s = data["memory.bandwidth_bytes_per_s"] * data.get("memory.efficiency", 1.0)
    except KeyError:
        return None
    points = _points(result)
    if not points or min(compute_flops_per_s, memory_bytes_per_s) <= 0:
        return None

    figure = new_figure("Steps under the device's roof", provenance(result), height_inches=5.3)
    axes = figure.add_subplot()
    ridge = compute_flops_per_s / memory_bytes_per_s
    intensities = [x for _, _, x, _ in points]
    x = np.array([min(*intensities, ridge) / 2.0, ridge, max(*intensities, ridge) * 3.0])
    roof = np.minimum(x * memory_bytes_per_s, compute_flops_per_s)
    axes.fill_between(x, roof / TERA, color=INK, alpha=0.06, linewidth=0)
    axes.plot(x, roof / TERA, color=INK, linewidth=2)
    # Configurations often stand nearly on the same spot: later ones are smaller, so that all show.
    sizes = {name: max(14.0 - 2.2 * index, 5.0) for index, name in enumerate(configurations(result))}
    drawn_ar = False
    for name, step, intensity, rate in points:
        if step == "ar_bf16":
            # The same whatever the draft is.
            if not drawn_ar:
                _mark(axes, intensity, rate, marker="*", colour=INK, size=15)
            drawn_ar = True
        else:
            _mark(axes, intensity, rate, marker=_STEPS[step][0], colour=colour_of(name), size=sizes[name])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(x[0], x[-1])
    rates = [rate for *_, rate in points]
    # A matrix unit of its own may be faster than the roof of everything else.
    axes.set_ylim(min(*rates, roof[0]) / TERA / 2.0, max(*rates, compute_flops_per_s) / TERA * 2.0)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
    axes.grid(True, which="major")
    axes.set(xlabel="arithmetic intensity (FLOP per byte, predicted)", ylabel="rate (TFLOP/s, predicted)")
    of_memory, of_arithmetic = (
        "calibrated" if statuses.get(efficiency) == "calibrated" else "input"
        for efficiency in ("memory.efficiency", "compute_efficiency")
    )
    roof_label = (
        f"roof: {quantity('_bytes_per_s', memory_bytes_per_s)}"
        + (f" ({of_memory})" if of_memory != of_arithmetic else "")
        + f", {quantity('_flops_per_s', compute_flops_per_s)} ({of_arithmetic})"
    )
    _legend(figure, points, roof_label)
    return figure


def _points(result: ConfigurationsResult) -> list[tuple[str, str, float, float]]:
    """Configuration, step, FLOP per byte, FLOP/s of all operating points that a logarithmic axis can show."""
    points = []
    for name, configuration in configurations(result).items():
        for step in _STEPS:
            point = (configuration.roofline.value or {}).get(step) or {}
            intensity, rate = finite(point.get("flop_per_byte")), finite(point.get("flops_per_s"))
            if intensity is not None and rate is not None and min(intensity, rate) > 0:
                points.append((name, step, intensity, rate))
    return points


def _mark(axes: Axes, intensity: float, rate: float, *, marker: str, colour: str, size: float) -> None:
    edge = {"markeredgecolor": PAPER, "markeredgewidth": 0.8}
    axes.plot(intensity, rate / TERA, marker, markersize=size, markerfacecolor=colour, zorder=3, **edge)


def _legend(figure: Figure, points: list[tuple[str, str, float, float]], roof_label: str) -> None:
    """Shapes say the step, colours the configuration."""
    handles = [Line2D([], [], color=INK, linewidth=2, label=roof_label)]
    for step, (marker, label) in _STEPS.items():
        if any(step == drawn for _, drawn, _, _ in points):
            handles.append(Line2D([], [], color=INK, linestyle="none", marker=marker, markersize=9, label=label))
    for name in dict.fromkeys(name for name, step, _, _ in points if step != "ar_bf16"):
        handles.append(Line2D([], [], color=colour_of(name), linestyle="none", marker="h", markersize=10, label=name))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


_OFFSET = 0.09


_BARS = f"bars: {LARGEST_GAP:.0f} standard errors up and down"


_PREDICTED: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 9,
    "markerfacecolor": PAPER,
    "markeredgewidth": 2,
}


_COUNTED: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 9}


@styled
def tokens_figure(result: ConfigurationsResult) -> Figure | None:
    """Tokens per cycle of each configuration, predicted and counted side by side, with the gap in standard errors."""
    rows = []
    for name, configuration in configurations(result).items():
        predicted = configuration.tokens_per_cycle_predicted.number
        counted = configuration.tokens_per_cycle_counted.number
        if predicted is not None and counted is not None:
            rows.append((name, configuration, predicted, counted))
    if not rows:
        return None
    figure, axes = new_axes("Tokens per cycle, predicted and counted", provenance(result), height_inches=4.2, grid="y")
    drafts = [configuration for _, configuration, _, _ in rows]
    predicted_status = _statuses(draft.tokens_per_cycle_predicted for draft in drafts)
    counted_status = _statuses(draft.tokens_per_cycle_counted for draft in drafts)
    labels = []
    for index, (name, configuration, predicted, counted) in enumerate(rows):
        error = Quantity(configuration.tokens_per_cycle_counted.standard_error).number
        axes.plot(index - _OFFSET, predicted, **_PREDICTED, markeredgecolor=colour_of(name))
        bars = {"yerr": None if error is None else LARGEST_GAP * error, "elinewidth": 1.6, "capsize": 5}
        axes.errorbar(index + _OFFSET, counted, color=colour_of(name), **bars, **_COUNTED)
        gap = gap_in_standard_errors(configuration)
        labels.append(name if gap is None else f"{name}\ngap {gap:.1f} standard errors")
        if gap is not None and gap > LARGEST_GAP:
            labels[-1] += "\nDEFECT"
    axes.set_xticks(range(len(rows)), labels)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.margins(y=0.12)
    axes.set(xlabel="configuration", ylabel="tokens per cycle (tokens)")
    handles = [
        Line2D([], [], **_PREDICTED, markeredgecolor=INK, label=f"expected from the acceptance ({predicted_status})"),
        Line2D([], [], **_COUNTED, color=INK, label=f"counted in decoding ({counted_status}); {_BARS}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _statuses(quantities: Iterable[Quantity]) -> str:
    """Status of several numbers; where they differ, all of them."""
    return " or ".join(dict.fromkeys(quantity.status or NO_STATUS for quantity in quantities))
