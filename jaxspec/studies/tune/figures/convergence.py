"""How tuning went: the objective step by step, beside the hard configurations that it has to beat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxspec.report.figures.style import colour_of, legend_below, new_figure, styled
from jaxspec.report.titles import CONFIGURATIONS, in_order, provenance
from jaxspec.results.network_results import Configuration
from jaxspec.results.quantity import finite
from jaxspec.studies.tune.result import TuneResult

#: Lines to beat, and where the stages end up once hardened.
_HARD = {"default": ":", "j_grid": (0, (1, 3)), "grid": "--", "uniform": "-.", "tuned": (0, (6, 1))}


@styled
def convergence_figure(result: TuneResult, metrics: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Predicted speedup of the soft network per step of each stage, with the temperature beneath.

    Args:
        metrics: lines of this and other devices with device, stage, step, speedup and temperature.
    """
    stages = _by_stage(metrics, result.device)
    if not stages:
        return None
    temperatures = any(math.isfinite(line[2]) for lines in stages.values() for line in lines)
    figure = new_figure("Tuning, step by step", provenance(result), height_inches=4.9)
    if temperatures:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    else:
        axes, below = figure.add_subplot(), None
    axes.grid(True)
    for index, (stage, lines) in enumerate(stages.items()):
        steps, speedups, taus = zip(*lines)
        axes.plot(steps, speedups, color=colour_of(stage), linewidth=1.8, label=f"{stage} stage, soft training value")
        if below is not None:
            # Stages often share a schedule: dashes let the line beneath show.
            below.plot(steps, taus, color=colour_of(stage), linewidth=2, linestyle="--" if index else "-")
    for name, dashes in _HARD.items():
        speedup = result.configurations.get(name, Configuration()).speedup_vs_bf16_ar.number
        if speedup is not None:
            axes.axhline(
                speedup, color=colour_of(name), linestyle=dashes, linewidth=1.2, label=f"{name}, hard: {speedup:.2f}x"
            )
    axes.set_ylabel("speedup vs bf16 AR (x, predicted)")
    if below is not None:
        below.grid(True)
        below.set_ylim(bottom=0.0)
        below.set_ylabel("tempera-\nture", fontsize=9)
    (axes if below is None else below).set_xlabel("step of the stage")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes, columns=3)
    return figure


def _by_stage(metrics: Sequence[Mapping[str, Any]], device: Any) -> dict[str, list[tuple[float, float, float]]]:
    """Stage -> (step, speedup, temperature) by step, NaN where a value is absent."""
    stages: dict[str, list[tuple[float, float, float]]] = {}
    for line in metrics:
        step, stage = finite(line.get("step")), line.get("stage")
        if line.get("device") != device or step is None or stage is None:
            continue
        values = (finite(line.get(key)) for key in ("speedup", "temperature"))
        speedup, temperature = (math.nan if value is None else value for value in values)
        stages.setdefault(str(stage), []).append((step, speedup, temperature))
    return {stage: sorted(stages[stage]) for stage in in_order(stages, CONFIGURATIONS)}
