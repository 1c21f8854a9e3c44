"""Where the time of a step goes, operator by operator."""

from __future__ import annotations

from matplotlib.figure import Figure

from hwmodels.numerics.units import MICRO, MILLI
from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.report.figures.operator_colours import OPERATOR_COLOURS
from jaxspec.report.figures.style import PAPER, legend_below, new_figure, styled, text_colour_on
from jaxspec.report.titles import configurations, in_order, provenance
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.results.quantity import finite

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
