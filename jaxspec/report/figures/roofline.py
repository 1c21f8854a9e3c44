"""The device's roof and where each step stands under it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from hwmodels.numerics.units import TERA
from jaxspec.report.device_data import device_data
from jaxspec.report.figures.style import INK, PAPER, colour_of, new_figure, styled
from jaxspec.report.formatting import quantity
from jaxspec.report.titles import configurations, provenance
from jaxspec.results.network_results import ConfigurationsResult
from jaxspec.results.quantity import finite

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
