"""What `jaxspec predict --plot` draws: four panels for each device."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from hwmodels.numerics.units import MICRO, MILLI
from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.report.configurations import OPERATOR_COLOURS
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    PAPER,
    VERMILLION,
    WIDTH_INCHES,
    ShownFigure,
    limits_from_zero,
    styled,
)
from jaxspec.report.page import figures_of
from jaxspec.studies.predict.result import BatchRow, LengthRow, PredictResult
from jaxspec.studies.predict.view import METRICS, by_device

__all__ = ["figures", "prediction_figure"]

_STEPS = {"ar_bf16": "AR, bf16", "ar_stored": "AR, stored", "draft": "draft step", "verify": "verification"}
_LEAVES = 8
#: Characters of a line over a device's panels, and beside a bar.
_HEAD_CHARACTERS, _LEAF_CHARACTERS = 95, 24


@styled
def prediction_figure(results: Sequence[PredictResult]) -> Figure:
    """Speedup by draft length, time per operator, elasticities, speedup by batch: a row of two by two per device. Of several
    pairs of batch and context, speedup and tokens per second by both."""
    devices = by_device(results)
    heights = [7.4 if len(same) == 1 else 4.2 for same in devices]
    figure = ShownFigure(figsize=(WIDTH_INCHES * 1.25, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(devices), 1, squeeze=False, height_ratios=heights)
    for part, (result, *others) in zip(parts[:, 0], devices, strict=True):
        if others:
            _by_point(part, [result, *others])
            continue
        load = result.workload
        head = (
            f"{result.architecture} on {result.device}, {result.scheme.value}: batch {load.batch.value}, "
            f"context {load.context_tokens.value} (acceptance: input; the rest: predicted)"
        )
        part.suptitle("\n".join(textwrap.wrap(head, _HEAD_CHARACTERS)), fontsize=12)
        (lengths, operators), (elasticity, batches) = part.subplots(2, 2)
        _by_length(lengths, result)
        _by_operator(operators, result)
        _by_leaf(elasticity, result)
        _by_batch(batches, result)
    return figure


def _by_point(part: SubFigure, results: Sequence[PredictResult]) -> None:
    """A line for each value of the axis that has fewer, along the other one."""
    loads = [{"batch": one.workload.batch.known, "context": one.workload.context_tokens.known} for one in results]
    values = {name: sorted({load[name] for load in loads}) for name in ("batch", "context")}
    along, lines = sorted(values, key=lambda name: -len(values[name]))
    part.suptitle(
        f"{results[0].architecture} on {results[0].device} (acceptance: input; the rest: predicted)", fontsize=12
    )
    panels = {"speedup_vs_bf16_ar": "speedup over 16-bit AR", "tokens_per_s": "tokens/s, all sequences"}
    for axes, (metric, label) in zip(part.subplots(1, 2), panels.items(), strict=True):
        heights = [getattr(one, metric).known for one in results]
        for value in values[lines]:
            shown = [(load[along], y) for load, y in zip(loads, heights, strict=True) if load[lines] == value]
            axes.plot(*zip(*shown, strict=True), marker="o", label=f"{lines} {value:,}")
        unfit = [(load[along], y) for load, y, one in zip(loads, heights, results) if not one.fits.value]
        axes.plot(*zip(*unfit), "o", color=PAPER, markersize=3, zorder=3)  # within the markers
        axes.set_xscale("symlog", base=2)
        axes.set_xticks(values[along], [f"{value:,}" for value in values[along]])
        axes.set_ylim(limits_from_zero(heights))
        axes.set(xlabel=f"{along} (hollow: does not fit the memory)" if unfit else along, ylabel=label)
        axes.grid(True)
        axes.legend(fontsize=8)


#: The figure of one device by name.
figures = figures_of(prediction=lambda result: prediction_figure([result]))


def _speedups(axes: Axes, places: Sequence[float], rows: Sequence[LengthRow] | Sequence[BatchRow]) -> None:
    """Both speedups against something."""
    vs_bf16, vs_stored = zip(*((row.speedup_vs_bf16_ar.known, row.speedup_vs_stored_ar.known) for row in rows))
    axes.plot(places, vs_bf16, marker="o", color=BLUE, label="over 16-bit AR")
    axes.plot(places, vs_stored, marker="s", color=GREEN, label="over stored AR")


def _highest(row: LengthRow | BatchRow) -> float:
    return max(row.speedup_vs_bf16_ar.known, row.speedup_vs_stored_ar.known)


def _by_length(axes: Axes, result: PredictResult) -> None:
    rows = result.by_draft_length
    lengths = [row.draft_length.known for row in rows]
    _speedups(axes, lengths, rows)
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    best = result.draft_length.known
    axes.axvline(best, color=INK, linewidth=0.8, alpha=0.4)
    axes.set_ylim(limits_from_zero([1.0, *map(_highest, rows)]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="draft length (0: autoregressive)", ylabel="speedup", title=f"Best draft length: {best}")
    axes.grid(True)
    axes.legend()


def _by_operator(axes: Axes, result: PredictResult) -> None:
    seconds = {step: result.operators.known[step] for step in _STEPS}
    longest = max(sum(times.values()) for times in seconds.values())
    scale, unit = (MILLI, "ms") if longest >= MILLI else (MICRO, "µs")
    left = dict.fromkeys(_STEPS, 0.0)
    for operator in STEP_PARTS:
        widths = [times.get(operator, 0.0) / scale for times in seconds.values()]
        if any(widths):
            axes.barh(
                list(_STEPS.values()),
                widths,
                left=list(left.values()),
                color=OPERATOR_COLOURS[operator],
                edgecolor=PAPER,
                linewidth=0.5,
                label=operator,
            )
            left = {step: left[step] + width for step, width in zip(_STEPS, widths, strict=True)}
    axes.invert_yaxis()
    axes.set_xlim(limits_from_zero(left.values()))
    axes.set(xlabel=f"time of one step ({unit})", title="Where the time goes")
    if any(left.values()):
        axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _by_leaf(axes: Axes, result: PredictResult) -> None:
    by_metric = {metric: result.sensitivity.known[metric] for metric in METRICS if metric in result.sensitivity.known}
    strength = {leaf: max(abs(v.get(leaf, 0.0)) for v in by_metric.values()) for v in by_metric.values() for leaf in v}
    leaves = sorted(strength, key=lambda leaf: -strength[leaf])[:_LEAVES]
    height = 0.8 / len(by_metric)
    for i, (metric, values) in enumerate(by_metric.items()):
        places = [row + (i - (len(by_metric) - 1) / 2) * height for row in range(len(leaves))]
        colour = (BLUE, GREEN, VERMILLION)[i]
        axes.barh(places, [values.get(leaf, 0.0) for leaf in leaves], height, color=colour, label=METRICS[metric])
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(leaves)), [_in_lines(leaf) for leaf in leaves], fontsize=8)
    axes.invert_yaxis()
    axes.grid(True, axis="x")
    axes.set(xlabel="percent per percent of the number", title="What to change in the hardware")
    axes.legend(fontsize=8)


def _by_batch(axes: Axes, result: PredictResult) -> None:
    rows = result.by_batch
    batches = [row.batch.known for row in rows]
    _speedups(axes, batches, rows)
    for row in rows:
        text = str(row.draft_length.known) + ("" if row.fits.value else "*")
        axes.annotate(
            text, (row.batch.known, _highest(row)), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_ylim(limits_from_zero([1.0, *map(_highest, rows)], room=1.15))
    axes.grid(True)
    starred = "" if all(row.fits.value for row in rows) else ";\n*: does not fit the memory"
    axes.set(xlabel=f"batch (numbers: best draft length{starred})", ylabel="speedup", title="When to speculate")
    axes.legend(fontsize=8)


def _in_lines(leaf: str) -> str:
    """A dotted name, broken behind dots where it is long."""
    lines = [""]
    for part in leaf.replace(".", ".\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > _LEAF_CHARACTERS:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
