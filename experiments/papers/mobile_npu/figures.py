"""Figures 8 and 11 to 17 as far as hardware decides them. Matplotlib figures, not yet saved."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.papers.mobile_npu import tables
from experiments.papers.mobile_npu.decoding import (
    BATCHES,
    EXPONENTIALS,
    MATRICES,
    PROMPTS,
    decode,
    fit,
    gemv_seconds,
    gpu_footprint,
    matrices,
    prefill_tokens_per_s,
    softmax_seconds,
)
from experiments.papers.mobile_npu.details import QUERIES, attention_split
from experiments.papers.mobile_npu.scaling import METHODS, PHONES, Line
from experiments.papers.mobile_npu.tables import Solved
from experiments.papers.mobile_npu.versions import (
    CONTEXT,
    GENERATIONS,
    GPU,
    MODELS,
    SOFTMAX_KEYS,
    SOFTMAX_QUERIES,
    calibrated_device,
    claim,
    networks,
    printed,
)
from experiments.reproduce.paper import paper_figure
from hwmodels import catalog
from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, styled
from jaxspec.studies.scale.result import CurvePoint, PlanRow
from jaxspec.studies.sweep.pareto import is_pareto

__all__ = [
    "attention_figure",
    "budget_figure",
    "decoding_figure",
    "kernels_figure",
    "latency_figure",
    "power_figure",
    "processors_figure",
]


_MODEL_COLOURS = dict(zip(MODELS, (BLUE, VERMILLION, SKY, ORANGE), strict=True))
_LAYOUT_COLOURS = {"baseline": VERMILLION, "HMX layout": ORANGE, "no dequantization": GREEN}
_EXPONENTIAL_COLOURS = dict(zip(EXPONENTIALS, (BLUE, GREEN, VERMILLION), strict=True))


def _named(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, axis="y")


def _powers_of_two(axes: Axes, values: Sequence[int] = BATCHES) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


_figure = functools.partial(paper_figure, Path(__file__).parent)


@styled
def kernels_figure() -> Figure:
    """Fig. 15 and Fig. 14: layouts matrix by matrix, softmax by its exponential."""
    figure = _figure("kernels")
    above, below = figure.subplots(2, 1)
    seconds, places = gemv_seconds(calibrated_device(fit())), np.arange(len(matrices()))
    for i, (version, colour) in enumerate(_LAYOUT_COLOURS.items()):
        above.bar(places + 0.27 * (i - 1), seconds[version] / seconds["ours"], 0.25, color=colour, label=version)
        if version != "no dequantization":
            for end in ("lowest", "highest"):
                above.axhline(printed("fig15", over=version, end=end), color=colour, linestyle=":", linewidth=1)
    above.set_yscale("log")
    middle = len(MATRICES) // 2
    names = [
        MATRICES[one["matrix"]] + (f"\n{one['model']}" if i % len(MATRICES) == middle else "")
        for i, one in enumerate(matrices())
    ]
    above.set_xticks(places, names, fontsize=7)
    _named(above, "products of one token", "", "times ours")
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    times = softmax_seconds(calibrated_device(fit()), fit().step_packets)
    labels = [f"{q} x {k}" for q in SOFTMAX_QUERIES for k in SOFTMAX_KEYS]
    for i, (version, colour) in enumerate(_EXPONENTIAL_COLOURS.items()):
        ratio = np.ravel(times[version] / times["table"])
        below.bar(np.arange(len(labels)) + 0.27 * (i - 1), ratio, 0.25, color=colour, label=version)
    for over in ("32-bit floating-point exp", "16-bit floating-point exp"):
        colour = _EXPONENTIAL_COLOURS["float32" if over.startswith("32") else "float16"]
        below.axhline(printed("fig14", over=over, end="highest"), color=colour, linestyle=":", linewidth=1)
    below.set_xticks(np.arange(len(labels)), labels, fontsize=7)
    _named(below, "softmax of one head", "queries x keys", "times the table's")
    below.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@styled
def attention_figure() -> Figure:
    """Fig. 8: products and softmax of attention."""
    figure = _figure("attention")
    axes = figure.subplots()
    split, places = 1e6 * attention_split(calibrated_device(fit())), np.arange(len(QUERIES))
    parts = {"products": BLUE, "copying keys and values": SKY, "softmax": VERMILLION}
    for i, (part, colour) in enumerate(parts.items()):
        axes.bar(places, split[:, i], 0.5, bottom=split[:, :i].sum(axis=-1), color=colour, label=part)
    axes.set_xticks(places, [str(queries) for queries in QUERIES])
    _named(axes, "", "queries", "microseconds")
    axes.legend()
    return figure


@styled
def decoding_figure(solved: Solved) -> Figure:
    """Fig. 11 and Fig. 17: throughput over batch sizes and prompts."""
    figure = _figure("decoding")
    above, below = figure.subplots(2, 3, sharey="row")
    for axes, (generation, entry) in zip(above, GENERATIONS.items(), strict=True):
        for model, colour in _MODEL_COLOURS.items():
            if tables.fits(model, catalog.device(entry), CONTEXT):
                axes.plot(BATCHES, solved[generation, model].tokens_per_s()[0], "o-", color=colour, label=model)
        _powers_of_two(axes)
        _named(axes, generation, "samples", "tokens/s" if axes is above[0] else "")
    for axes, batch in zip(below, (1, 4, 16), strict=True):
        for model, colour in _MODEL_COLOURS.items():
            rate = solved["V75", model].tokens_per_s()[:, BATCHES.index(batch)]
            axes.plot(PROMPTS, rate / rate[0], "o-", color=colour, label=model)
        _powers_of_two(axes, PROMPTS)
        axes.set_ylim(0.0, 1.1)
        _named(axes, f"V75, samples: {batch}", "prompt, tokens", "of 512 tokens' rate" if axes is below[0] else "")
    handles, labels = above[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


@styled
def power_figure(solved: Solved) -> Figure:
    """Fig. 12 and Fig. 16: power, energy of a step, memory."""
    figure = _figure("power")
    power, energy, held = figure.subplots(1, 3)
    two = ("Qwen2.5-1.5B", "Qwen2.5-3B")
    reference = solved["V75", two[0]].energy_j
    for model in two:
        step, colour = solved["V75", model], _MODEL_COLOURS[model]
        watts = step.power_w()
        if watts is not None and step.energy_j is not None and reference is not None:
            power.plot(BATCHES, watts[-1], "o-", color=colour, label=model)
            energy.plot(BATCHES, step.energy_j[-1] / reference[-1, 0], "o-", color=colour)
    power.axhline(claim("NPU019"), color=_MODEL_COLOURS[two[1]], linestyle=":", linewidth=1)
    power.set_ylim(0.0, claim("NPU018") * 1.1)
    _named(power, "power", "samples", "W")
    _named(energy, "energy of a step", "samples", "of one sample of 1.5B")
    for axes in (power, energy):
        _powers_of_two(axes)
    places = np.arange(len(two))
    held.bar(places, [tables.session_mib(model, CONTEXT) for model in two], 0.5, color=[_MODEL_COLOURS[m] for m in two])
    held.plot(places, [printed("memory_power", "dmabuf_memory", model=model) for model in two], "o", color=PURPLE)
    held.set_xticks(places, two)
    _named(held, "memory of the session", "", "MiB")
    power.legend(loc="lower right")
    return figure


@styled
def processors_figure(solved: Solved) -> Figure:
    """Fig. 13: the NPU beside the GPU of the same phone."""
    figure = _figure("processors")
    decoding, prompts = figure.subplots(1, 2)
    device, npu = catalog.device(GPU), calibrated_device(fit())
    two, places = ("Qwen2.5-1.5B", "Qwen2.5-3B"), np.arange(2)
    for model in two:
        colour = _MODEL_COLOURS[model]
        decoding.plot(BATCHES, solved["V75", model].tokens_per_s()[0], "o-", color=colour, label=f"NPU, {model}")
        rate = decode(device, networks()[model], PROMPTS[:1], gpu_footprint()).tokens_per_s()[0]
        decoding.plot(BATCHES, rate, "s--", color=colour, label=f"GPU, {model}")
    _powers_of_two(decoding)
    _named(decoding, "decoding", "samples", "tokens/s")
    decoding.legend()
    for i, (name, on, stored) in enumerate((("NPU", npu, None), ("GPU", device, gpu_footprint()))):
        rates = [prefill_tokens_per_s(on, networks()[model], PROMPTS[0], stored) for model in two]
        prompts.bar(places + 0.3 * i - 0.15, rates, 0.28, color=(BLUE, GREEN)[i], label=name)
    prompts.set_xticks(places, two)
    _named(prompts, "processing the prompt", "", "tokens/s")
    prompts.legend()
    return figure


_COLOURS = (BLUE, VERMILLION)


def _spread(points: Sequence[CurvePoint] | Sequence[PlanRow]) -> tuple[list[float], list[list[float]]]:
    """Accuracies, and how far their intervals reach below and above."""
    mean = [point.accuracy.known for point in points]
    below = [max(0.0, m - point.low.known) for m, point in zip(mean, points, strict=True)]
    above = [max(0.0, point.high.known - m) for m, point in zip(mean, points, strict=True)]
    return mean, [below, above]


@styled
def budget_figure(tasks: Mapping[str, tuple[Line, Line]]) -> Figure:
    """Fig. 5: best-of-N of two networks on each task.

    Args:
        tasks: of `scaling`.
    """
    figure = _figure("budget")
    for axes, (task, lines) in zip(figure.subplots(1, len(tasks), sharey=True), tasks.items(), strict=True):
        budgets = [point.samples for point in lines[0].curve("best-of-n")]
        for line, colour in zip(lines, _COLOURS, strict=True):
            points = line.curve("best-of-n")
            mean, spread = _spread(points)
            axes.errorbar(
                budgets, mean, yerr=spread, color=colour, marker="o", markersize=4, capsize=2, label=line.label
            )
        _powers_of_two(axes, budgets)
        axes.set_ylim(0.0, 1.04)
        axes.set_title(task, loc="left", fontsize=10)
        axes.set(xlabel="samples N", ylabel="problems answered right")
        axes.label_outer()
        axes.grid(True)
        axes.legend(loc="lower right", fontsize=8)
    return figure


@styled
def latency_figure(tasks: Mapping[str, tuple[Line, Line]]) -> Figure:
    """Fig. 10: a row for each method, a column for each task on each phone.

    Args:
        tasks: of `scaling`.
    """
    figure = _figure("latency")
    places = [(task, phone) for task in tasks for phone in PHONES]
    grid = figure.subplots(len(METHODS), len(places), sharey=True, squeeze=False)
    for row, (method, title) in zip(grid, METHODS.items(), strict=True):
        for axes, (task, phone) in zip(row, places, strict=True):
            _draw(axes, [line.plans(phone, method) for line in tasks[task]])
            if method == next(iter(METHODS)):
                axes.set_title(f"{task}\nHexagon {phone}", loc="left", fontsize=9)
            else:
                axes.set_xlabel("s")
        row[0].set_ylabel(f"{title}:\nanswered right")
    handles = [
        Line2D([], [], color=colour, marker="o", label=f"{task}: {line.label}")
        for task, lines in tasks.items()
        for line, colour in zip(lines, _COLOURS, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _draw(axes: Axes, lines: Sequence[Sequence[PlanRow]]) -> None:
    """A panel: both networks' plans that fit, and those that none beats."""
    shown = [[row for row in plans if row.fits.value] for plans in lines]
    for plans, colour in zip(shown, _COLOURS, strict=True):
        cost, (mean, spread) = [row.decode_s.known for row in plans], _spread(plans)
        axes.errorbar(cost, mean, yerr=spread, color=colour, marker="o", markersize=4, linewidth=1.0, elinewidth=0.6)
        for row, x, y in zip(plans, cost, mean, strict=True):
            axes.annotate(str(row.samples), (x, y), (3, -9), textcoords="offset points", fontsize=7)
            if row.samples == 1:
                axes.plot(x, y, "o", color=colour, markersize=9)
    every = [row for plans in shown for row in plans]
    cost, accuracy = (np.array(part) for part in zip(*((row.decode_s.known, row.accuracy.known) for row in every)))
    keep = is_pareto(cost, -accuracy)
    front = np.array(sorted(zip(cost[keep], accuracy[keep], strict=True)))
    axes.step(*front.T, where="post", color=INK, linewidth=6, alpha=0.18, zorder=0)
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.04)
    axes.grid(True)
