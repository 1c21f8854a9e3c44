"""A colour for each part of a step, the same in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from hwmodels.numerics.units import MICRO, MILLI, TERA
from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.report.assumptions import device_data
from jaxspec.report.columns import NO_STATUS
from jaxspec.report.configurations import LARGEST_GAP, gap_in_standard_errors
from jaxspec.report.figures.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    colour_of,
    legend_below,
    new_figure,
    styled,
    text_colour_on,
)
from jaxspec.report.formatting import quantity
from jaxspec.report.titles import configurations, in_order, provenance
from jaxspec.results import Quantity
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.results.quantity import finite

__all__ = ["OPERATOR_COLOURS", "operator_time_figure", "roofline_figure", "tokens_figure"]

#: Neighbours differ in lightness as well as in hue; attention projections are blue, the feed-forward network warm.
OPERATOR_COLOURS = {
    "embed": "#6e6e6e",
    "qkv": BLUE,
    "latent": SKY,
    "attention": GREEN,
    "linear_attention": "#00483a",
    "o": "#9ed2f0",
    "gate_up": VERMILLION,
    "down": YELLOW,
    "router": "#1d4f78",
    "expert_gate_up": ORANGE,
    "expert_down": "#f6d9a8",
    "shared_gate_up": "#8c3b00",
    "shared_down": "#c9a227",
    "norm": "#9b9b9b",
    "lm_head": PURPLE,
    "all_reduce": "#3b3b3b",
    "all_gather": "#b7b7b7",
    "reduce_scatter": "#525252",
    "all_to_all": "#d4a0c0",
    "send": "#dcdcdc",
    "kv_encoding": "#7a4a2b",
}


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
    figure = new_figure("Time per operator", provenance(result), height_inches=1.5 + 0.55 * len(bars))
    axes = figure.add_subplot()
    axes.grid(True, axis="x")
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
            axes.barh(
                row,
                width / scale,
                left=left / scale,
                height=0.72,
                color=colour,
                edgecolor=PAPER,
                linewidth=0.6,
                label=None if operator in labelled else operator,
            )
            labelled.add(operator)
            if width > _SHARE_WITH_NAME * longest_s and len(operator) * 0.014 * longest_s < width:
                axes.text(
                    (left + width / 2) / scale,
                    row,
                    operator,
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color=text_colour_on(colour),
                )
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
    found = configurations(result)
    chosen = {name: found[name] for name in compared if name in found}
    plain = next((parts for each in found.values() if (parts := _seconds(each, "ar_bf16"))), {})
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
    found = device_data(result)
    data = {number.field: number.value for number in found}
    statuses = {number.field: number.status for number in found}
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
    axes.set_xlabel("arithmetic intensity (FLOP per byte, predicted)")
    axes.set_ylabel("rate (TFLOP/s, predicted)")
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
    found = []
    for name, configuration in configurations(result).items():
        for step in _STEPS:
            point = (configuration.roofline.value or {}).get(step) or {}
            intensity, rate = finite(point.get("flop_per_byte")), finite(point.get("flops_per_s"))
            if intensity is not None and rate is not None and min(intensity, rate) > 0:
                found.append((name, step, intensity, rate))
    return found


def _mark(axes: Axes, intensity: float, rate: float, *, marker: str, colour: str, size: float) -> None:
    axes.plot(
        intensity,
        rate / TERA,
        linestyle="none",
        marker=marker,
        markersize=size,
        markerfacecolor=colour,
        markeredgecolor=PAPER,
        markeredgewidth=0.8,
        zorder=3,
    )


def _legend(figure: Figure, points: list[tuple[str, str, float, float]], roof_label: str) -> None:
    """Shapes say the step, colours the configuration."""
    handles = [Line2D([], [], color=INK, linewidth=2, label=roof_label)]
    for step, (marker, label) in _STEPS.items():
        if any(step == found for _, found, _, _ in points):
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
    figure = new_figure("Tokens per cycle, predicted and counted", provenance(result), height_inches=4.2)
    axes = figure.add_subplot()
    axes.grid(True, axis="y")
    drafts = [configuration for _, configuration, _, _ in rows]
    predicted_status = _statuses(draft.tokens_per_cycle_predicted for draft in drafts)
    counted_status = _statuses(draft.tokens_per_cycle_counted for draft in drafts)
    labels = []
    for index, (name, configuration, predicted, counted) in enumerate(rows):
        error = Quantity(configuration.tokens_per_cycle_counted.standard_error).number
        axes.plot(index - _OFFSET, predicted, **_PREDICTED, markeredgecolor=colour_of(name))
        axes.errorbar(
            index + _OFFSET,
            counted,
            yerr=None if error is None else LARGEST_GAP * error,
            color=colour_of(name),
            elinewidth=1.6,
            capsize=5,
            **_COUNTED,
        )
        gap = gap_in_standard_errors(configuration)
        labels.append(name if gap is None else f"{name}\ngap {gap:.1f} standard errors")
        if gap is not None and gap > LARGEST_GAP:
            labels[-1] += "\nDEFECT"
    axes.set_xticks(range(len(rows)), labels)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.margins(y=0.12)
    axes.set_xlabel("configuration")
    axes.set_ylabel("tokens per cycle (tokens)")
    handles = [
        Line2D([], [], **_PREDICTED, markeredgecolor=INK, label=f"expected from the acceptance ({predicted_status})"),
        Line2D([], [], **_COUNTED, color=INK, label=f"counted in decoding ({counted_status}); {_BARS}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _statuses(quantities: Iterable[Quantity]) -> str:
    """Status of several numbers; where they differ, all of them."""
    return " or ".join(dict.fromkeys(quantity.status or NO_STATUS for quantity in quantities))
