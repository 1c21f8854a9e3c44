"""What `jaxspec predict --plot` draws: four panels for each device."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hwmodels import OPERATORS
from hwmodels.units import MICRO, MILLI
from jaxspec.report.figures.operator_time import OPERATOR_COLOURS
from jaxspec.report.figures.style import BLUE, GREEN, INK, PAPER, VERMILLION, WIDTH_INCHES, ShownFigure, styled

__all__ = ["prediction_figure"]

_STEPS = {"ar_bf16": "AR, bf16", "ar_stored": "AR, stored", "draft": "draft step", "verify": "verification"}
_METRICS = {"speedup_vs_bf16_ar": "speedup", "tokens_per_s": "tokens/s", "energy_per_token_j": "energy per token"}
_LEAVES = 8


@styled
def prediction_figure(entries: list[dict[str, Any]]) -> Figure:
    """Speedup by draft length, time per operator, elasticities, speedup by batch: a row of two by two per device."""
    figure = ShownFigure(figsize=(WIDTH_INCHES * 1.25, 7.4 * len(entries)), layout="constrained")
    parts = figure.subfigures(len(entries), 1, squeeze=False)
    for part, entry in zip(parts[:, 0], entries, strict=True):
        scheme = "" if entry["scheme"] is None else f", {entry['scheme']}"
        load = entry["workload"]
        part.suptitle(
            f"{entry['architecture']} on {entry['device']}{scheme}: batch {load['batch']}, "
            f"context {load['context_tokens']} (acceptance: input; the rest: predicted)",
            fontsize=12,
        )
        (lengths, operators), (elasticity, batches) = part.subplots(2, 2)
        _by_length(lengths, entry)
        _by_operator(operators, entry)
        _by_leaf(elasticity, entry)
        _by_batch(batches, entry)
    return figure


def _by_length(axes: Axes, entry: dict[str, Any]) -> None:
    rows = entry["by_draft_length"]
    lengths = [row["draft_length"] for row in rows]
    axes.plot(lengths, [row["speedup_vs_bf16_ar"] for row in rows], marker="o", color=BLUE, label="over 16-bit AR")
    axes.plot(lengths, [row["speedup_vs_stored_ar"] for row in rows], marker="s", color=GREEN, label="over stored AR")
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    best = entry["draft_length"]
    axes.axvline(best, color=INK, linewidth=0.8, alpha=0.4)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel="draft length (0: autoregressive)", ylabel="speedup", title=f"Best draft length: {best}")
    axes.grid(True)
    axes.legend()


def _by_operator(axes: Axes, entry: dict[str, Any]) -> None:
    longest = max(sum(entry["operators"][step].values()) for step in _STEPS)
    scale, unit = (MILLI, "ms") if longest >= MILLI else (MICRO, "µs")
    left = dict.fromkeys(_STEPS, 0.0)
    for operator in OPERATORS:
        widths = [entry["operators"][step][operator] / scale for step in _STEPS]
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
    axes.set(xlabel=f"time of one step ({unit})", title="Where the time goes")
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _by_leaf(axes: Axes, entry: dict[str, Any]) -> None:
    found = {metric: entry["sensitivity"][metric] for metric in _METRICS if metric in entry["sensitivity"]}
    strength = {leaf: max(abs(v.get(leaf, 0.0)) for v in found.values()) for v in found.values() for leaf in v}
    leaves = sorted(strength, key=lambda leaf: -strength[leaf])[:_LEAVES]
    height = 0.8 / len(found)
    for i, (metric, values) in enumerate(found.items()):
        places = [row + (i - (len(found) - 1) / 2) * height for row in range(len(leaves))]
        colour = (BLUE, GREEN, VERMILLION)[i]
        axes.barh(places, [values.get(leaf, 0.0) for leaf in leaves], height, color=colour, label=_METRICS[metric])
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(leaves)), leaves, fontsize=8)
    axes.invert_yaxis()
    axes.grid(True, axis="x")
    axes.set(xlabel="percent per percent of the number", title="What to change in the hardware")
    axes.legend(fontsize=8)


def _by_batch(axes: Axes, entry: dict[str, Any]) -> None:
    rows = entry["by_batch"]
    batches = [row["batch"] for row in rows]
    for key, label, colour in (
        ("speedup_vs_bf16_ar", "over 16-bit AR", BLUE),
        ("speedup_vs_stored_ar", "over stored AR", GREEN),
    ):
        axes.plot(batches, [row[key] for row in rows], color=colour, marker="o", label=label)
    for row in rows:
        text = str(row["draft_length"]) + ("" if row["fits"] else "*")
        axes.annotate(
            text,
            (row["batch"], row["speedup_vs_bf16_ar"]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_ylim(0.0, 1.15 * max(row["speedup_vs_bf16_ar"] for row in rows))
    axes.grid(True)
    starred = "" if all(row["fits"] for row in rows) else "; *: does not fit the memory"
    axes.set(xlabel=f"batch (numbers: best draft length{starred})", ylabel="speedup", title="When to speculate")
    axes.legend(fontsize=8)
