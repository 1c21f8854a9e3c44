"""Figures 14 to 16 from the model, as far as numbers of the paper reach: MT-Bench. Matplotlib figures, not yet saved."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from experiments.papers.elmoe3d.baselines import baseline_speedups
from experiments.papers.elmoe3d.calibration import FITTED_HALF
from experiments.papers.elmoe3d.energy import COMPONENTS, baseline_energy, best_mode_energy
from experiments.papers.elmoe3d.networks import target
from experiments.papers.elmoe3d.printed import BATCHES, METHODS, MODELS, table_three
from experiments.papers.elmoe3d.results import Solved
from hwmodels import touched_experts
from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, new_figure, styled

__all__ = ["energy_figure", "locality_figure", "platform_figure"]

#: Of the components of energy.
_COMPONENT_COLOURS = (VERMILLION, BLUE, SKY, GREEN, ORANGE)

_COLOURS = dict(zip(MODELS, (BLUE, GREEN, ORANGE, PURPLE), strict=True))


@styled
def platform_figure(solved: Solved) -> Figure:
    """Fig. 14, MT-Bench alone: speedup over the xPU by target, platform and batch."""
    figure = new_figure(
        "Speedup over the xPU, MT-Bench, 8 GB",
        "Dashed: autoregressive decoding; solid: speculation. The chip with Elastic-SD and the bonded xPU with EAGLE3 are "
        "the model fitted to Table 3 (dots: printed); memories that compute are predicted, autoregressive decoding alone.",
        height_inches=5.6,
    )
    others = baseline_speedups()
    for axes, (row, model) in zip(figure.subplots(2, 2).ravel(), enumerate(MODELS), strict=True):
        found, printed = solved.halves[FITTED_HALF], table_three(FITTED_HALF)
        for method, name, colour in (("Elastic-SD", "Elastic-SD", BLUE), ("EAGLE3", "HB-xPU, EAGLE3", ORANGE)):
            place = METHODS.index(method)
            axes.plot(BATCHES, found.autoregressive[row, place], "--^", color=colour, markersize=3)
            axes.plot(BATCHES, found.speculative[row, place], "-", color=colour, label=name)
            axes.plot(BATCHES, printed.speculative[row, place], "o", color=colour, markersize=4)
        for (name, values), colour in zip(others.items(), (GREEN, PURPLE, SKY), strict=True):
            axes.plot(BATCHES, values[row], "--^", color=colour, markersize=3, label=name)
        axes.set_title(model, loc="left", fontsize=10)
        axes.set(xlabel="batch", ylabel="speedup", ylim=(0, None))
        axes.legend(fontsize=7)
    return figure


@styled
def energy_figure(solved: Solved) -> Figure:
    """Fig. 15: energy per token by component, over Elastic-SD's sum."""
    figure = new_figure(
        "Energy per token, MT-Bench, 8 GB",
        "Left bar: the xPU; right bar: Elastic-SD in its faster mode (dot: speculation), whose energy is 1. Energies of "
        "accesses are printed; arithmetic, communication and static power are assumed.",
        height_inches=4.0,
    )
    found = solved.halves[FITTED_HALF]
    base, ours = baseline_energy(found), best_mode_energy(found)
    for axes, (row, model) in zip(figure.subplots(1, 4, sharey=True), enumerate(MODELS), strict=True):
        unit, places = ours.total_j[row], np.arange(len(BATCHES))
        for offset, energy in ((-0.2, base), (0.2, ours)):
            bottom = np.zeros(len(BATCHES))
            for part, name, colour in zip(energy.by_component[:, row], COMPONENTS, _COMPONENT_COLOURS, strict=True):
                label = name.removesuffix("_j") if offset < 0 else None
                axes.bar(places + offset, part / unit, 0.36, bottom=bottom, color=colour, label=label)
                bottom += part / unit
        some = places[ours.speculates[row]]
        axes.plot(some + 0.2, np.full(some.size, 0.15), "o", color=INK, markersize=3)
        axes.set_xticks(places, [str(batch) for batch in BATCHES])
        axes.set_title(model, loc="left", fontsize=9)
        axes.set_xlabel("batch")
    figure.axes[0].set_ylabel("energy per token, ratio")
    figure.axes[0].legend(fontsize=7)
    return figure


@styled
def locality_figure(solved: Solved) -> Figure:
    """Fig. 16: misses by batch and target, and experts that tokens of one request and of several touch."""
    figure = new_figure(
        "Locality of experts",
        "By the numbers fitted to Table 3. Left: misses with a third of all experts cached, by batch; dashed while decoding, "
        "solid while speculating. Right: experts of GLM-4.7-Flash touched by tokens of one request and of as many requests.",
        height_inches=3.6,
    )
    misses, unique = figure.subplots(1, 2)
    fitted = solved.fit.fitted
    batches = np.geomspace(1, 16, 30)
    exponent = 1 - (1 - float(fitted.speculative_locality)) * batches ** -float(fitted.fading)
    misses.plot(batches, 1 - (1 / 3) ** exponent, color=INK, label="speculation, all targets")
    for row, (model, colour) in enumerate(_COLOURS.items()):
        misses.axhline(
            1 - (1 / 3) ** float(fitted.locality[row]), color=colour, linestyle="--", linewidth=1, label=model
        )
    misses.set(xlabel="batch", ylabel="miss rate", ylim=(0, 1))
    misses.legend(fontsize=7)
    row, a = list(MODELS).index("GLM-4.7-Flash"), target("GLM-4.7-Flash")
    tokens = np.linspace(1, 60, 60)
    request = 1 + (float(fitted.verified_tokens[row]) - 1) * (tokens - 1) / 59
    for count, name, colour in (
        (tokens ** float(fitted.independence[row]), "of as many requests", VERMILLION),
        (request, "of one request", BLUE),
    ):
        unique.plot(tokens, touched_experts(a.num_experts, a.experts_per_token, count), color=colour, label=name)
    unique.set(xlabel="tokens", ylabel="experts of 64", ylim=(0, 66))
    unique.legend(fontsize=7)
    return figure
