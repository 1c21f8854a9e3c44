"""Figures 4, 9, 12 and 13 from the model, with what the paper prints on them. Matplotlib figures, not yet saved.

Autoregressive decoding of the targets on the paper's other accelerators, which compute in or near the external memory.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from experiments.papers.elmoe3d.energy import COMPONENTS, baseline_energy, best_mode_energy
from experiments.papers.elmoe3d.model import devices
from experiments.papers.elmoe3d.printed import (
    BATCHES,
    CAPACITIES,
    CONTEXT_TOKENS,
    DRAFT_KV_BITS,
    INT8_BITS,
    KV_BITS,
    LOW_BITS,
    METHODS,
    MODELS,
    eagle_head,
    small_model,
    table_three,
    target,
    target_bits,
)
from experiments.papers.elmoe3d.results import FITTED_HALF, Solved
from experiments.papers.elmoe3d.steps import targets
from experiments.reproduce.paper import paper_figure
from hwmodels import EXPERT_OPERATORS, KINDS, OPERATORS, catalog, step_cost, step_operators, touched_experts
from hwmodels.network.architecture import EXPERT_MATRICES
from hwmodels.network.operators import OperatorWork, StepShape
from hwmodels.step.capacity import held_bytes
from jaxspec.report.figure_style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, styled

__all__ = [
    "baseline_speedups",
    "best_rival_energy",
    "energy_figure",
    "intensity_figure",
    "latency_figure",
    "locality_figure",
    "mapping_figure",
    "platform_figure",
    "roofline_figure",
    "table_figure",
]

METHOD_COLOURS = dict(zip(METHODS, (ORANGE, GREEN, PURPLE, BLUE), strict=True))
_GIGA, _MILLI = 1e9, 1e-3
_QWEN = next(iter(MODELS))


_figure = functools.partial(paper_figure, Path(__file__).parent)


def _decode_step(model: str, batch: float) -> OperatorWork:
    """Work of a target's step without speculation; embeddings lie elsewhere."""
    bits = target_bits(model) | {"embed": 0.0}
    shape = StepShape(tokens=1, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=KV_BITS)
    return step_operators(target(model), shape)


@styled
def intensity_figure(solved: Solved) -> Figure:
    """Fig. 4: arithmetic intensity of dense layers and experts; experts of a verification, and what EAGLE gains by it."""
    figure = _figure("intensity")
    intensity, touched, speedup = figure.subplots(1, 3)
    batches = np.array([1, 2, 4, 8, 16, 32, 64])
    model, is_expert = "DeepSeek-V2-Lite", np.isin(OPERATORS, EXPERT_OPERATORS)
    for name, some, colour in (
        ("dense", ~is_expert & ~np.isin(OPERATORS, ("embed", "attention", "norm")), BLUE),
        ("experts", is_expert, VERMILLION),
    ):
        works = [_decode_step(model, float(batch)) for batch in batches]
        ratio = [float(np.sum(np.asarray(w.flops)[some]) / np.sum(np.asarray(w.weight_bytes)[some])) for w in works]
        intensity.plot(batches, ratio, color=colour, marker="o", markersize=3, label=name)
    intensity.set(xscale="log", yscale="log", xlabel="batch", ylabel="operations per byte")
    intensity.legend()
    place = list(MODELS).index("GLM-4.7-Flash")
    steps = solved.halves[FITTED_HALF].steps["EAGLE3"]
    touched.plot(BATCHES, steps.autoregressive.touched_experts[place], color=BLUE, marker="o", markersize=3, label="AR")
    touched.plot(BATCHES, steps.verify.touched_experts[place], color=VERMILLION, marker="o", markersize=3, label="SD")
    touched.set(xlabel="batch", ylabel="experts of 64", ylim=(0, 66))
    touched.legend()
    printed, half = table_three(FITTED_HALF), solved.halves[FITTED_HALF]
    for row, (name, colour) in enumerate(zip(MODELS, (BLUE, GREEN, ORANGE, PURPLE), strict=True)):
        gain = half.speculative[row, 0] / half.autoregressive[row, 0]
        speedup.plot(BATCHES, gain, color=colour, label=name)
        speedup.plot(
            BATCHES, printed.speculative[row, 0] / printed.autoregressive[row, 0], "o", color=colour, markersize=3
        )
    speedup.axhline(1.0, color=INK, linewidth=0.8)
    speedup.set(xlabel="batch", ylabel="EAGLE3 over AR", ylim=(0, None))
    speedup.legend(fontsize=7)
    return figure


@styled
def roofline_figure() -> Figure:
    """Fig. 9 (b): rooflines of both memories, with all PEs and with a quarter of them."""
    figure = _figure("roofline")
    axes = figure.subplots()
    bonded, _ = devices(FITTED_HALF)
    intensity = np.geomspace(1, 1e5, 200)
    peak = bonded.matrix_unit.peak_flops_per_s / 2
    for tier, name, colour in ((bonded.memory, "HB", BLUE), (bonded.spill[-1], "EXT", VERMILLION)):
        for used, dash in ((1.0, "-"), (0.25, "--")):
            rate = tier.bandwidth_bytes_per_s * (used if tier.coupled else 1.0)
            axes.plot(
                intensity,
                np.minimum(used * peak, rate * intensity) / 1e12,
                dash,
                color=colour,
                label=f"{name}, {used:.0%} of the PEs",
            )
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="TOPS")
    axes.legend()
    axes.grid(True)
    return figure


def _parts_gb(model: str, batch: int) -> dict[str, float]:
    """Gigabytes of what is static, of KV and of both drafts of their own."""
    stored = _decode_step(model, batch).stored
    assert stored is not None
    own = {}
    for method, draft in (("EAGLE3", eagle_head(model)), ("SLM-SD", small_model())):
        bits = dict.fromkeys(KINDS, INT8_BITS) | {"embed": 0.0}
        kept = held_bytes(
            draft.architecture, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=DRAFT_KV_BITS
        )
        own[method] = (float(kept.total) + draft.stored_embedding * INT8_BITS / 8) / _GIGA
    return {"dense weights": float(stored.dense) / _GIGA, "KV cache": float(stored.kv) / _GIGA, **own}


@styled
def mapping_figure(solved: Solved) -> Figure:
    """Fig. 12: what lies in HB memory by method, and accepted tokens, draft and verification times. Qwen3, batch 16, 8 GB."""
    figure = _figure("mapping")
    memory, cycle = figure.subplots(1, 2)
    row, column, half = list(MODELS).index(_QWEN), BATCHES.index(16), solved.halves[FITTED_HALF]
    parts, expert = _parts_gb(_QWEN, 16), _expert_gb(_QWEN)
    for place, method in enumerate(METHODS):
        steps = half.steps[method]
        draft = parts.get(method, 0.0)
        share = 1.0 if method in ("EAGLE3", "SLM-SD") else LOW_BITS / INT8_BITS
        copies = parts["dense weights"] * share if method == "Quant-SD" else 0.0
        cached = float(steps.verify.cached_experts[row, column]) * expert * share
        bottom = 0.0
        for name, size, colour in (
            ("dense weights", parts["dense weights"], INK),
            ("KV cache", parts["KV cache"], SKY),
            ("draft", draft + copies, ORANGE),
            ("experts", cached, BLUE),
        ):
            memory.bar(place, size, 0.6, bottom=bottom, color=colour, label=name if place == 0 else None)
            bottom += size
        cycle.bar(place - 0.2, 10 * float(steps.draft.seconds[row, column]) / _MILLI, 0.35, color=ORANGE)
        cycle.bar(place + 0.2, float(steps.verify.seconds[row, column]) / _MILLI, 0.35, color=BLUE)
        accepted = f"{half.tokens[row, place, column] - 1:.1f} accepted"
        cycle.annotate(accepted, (place, 1500), ha="center", fontsize=7)
    memory.axhline(8.0, color=VERMILLION, linewidth=1)
    memory.set(ylabel="GB", ylim=(0, 8.6))
    cycle.set(yscale="log", ylabel="ms of a cycle: drafting, verification", ylim=(2, 2500))
    for axes in (memory, cycle):
        axes.set_xticks(range(len(METHODS)), METHODS, fontsize=8)
    figure.legend(*memory.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _expert_gb(model: str) -> float:
    """Gigabytes of one expert of each layer."""
    a, bits = target(model), target_bits(model)
    return (
        float(3 * a.num_moe_layers * a.hidden_size * a.expert_intermediate_size * bits[EXPERT_MATRICES[0]] / 8) / _GIGA
    )


@styled
def latency_figure(solved: Solved) -> Figure:
    """Fig. 13: drafting and verification by batch, with 4 and 8 GB. Qwen3, MT-Bench."""
    figure = _figure("latency")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    row = list(MODELS).index(_QWEN)
    for column, gb in enumerate(sorted(CAPACITIES)):
        for method, colour in METHOD_COLOURS.items():
            steps = solved.halves[gb].steps[method]
            for line, (step, count) in enumerate(((steps.draft, 10), (steps.verify, 1))):
                axes[line, column].plot(
                    BATCHES,
                    count * np.asarray(step.seconds)[row] / _MILLI,
                    color=colour,
                    marker="o",
                    markersize=3,
                    label=method,
                )
        axes[0, column].set_title(f"{gb} GB", loc="left", fontsize=10)
        axes[0, column].set_yscale("log")
        axes[1, column].set_xlabel("batch")
    axes[0, 0].set_ylabel("drafting, ms")
    axes[1, 0].set_ylabel("verification, ms")
    axes[0, 0].legend(fontsize=7)
    return figure


@styled
def table_figure(solved: Solved) -> Figure:
    """Table 3: model over printed speedups of both halves."""
    figure = _figure("table")
    for axes, gb in zip(figure.subplots(1, 2), CAPACITIES, strict=True):
        printed, half = table_three(gb), solved.halves[gb]
        for place, (method, colour) in enumerate(METHOD_COLOURS.items()):
            for field, mark in (("autoregressive", "o"), ("speculative", "x")):
                theirs, ours = getattr(printed, field)[:, place].ravel(), getattr(half, field)[:, place].ravel()
                axes.plot(theirs, ours, mark, color=colour, markersize=4, label=method if mark == "o" else None)
        ends = np.array([0.5, 16.0])
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="printed", ylabel="model")
        axes.set_title(f"{gb} GB", loc="left", fontsize=10)
        axes.legend(fontsize=7)
    return figure


#: Of the components of energy.
_COMPONENT_COLOURS = (VERMILLION, BLUE, SKY, GREEN, ORANGE)

_COLOURS = dict(zip(MODELS, (BLUE, GREEN, ORANGE, PURPLE), strict=True))


@styled
def platform_figure(solved: Solved) -> Figure:
    """Fig. 14, MT-Bench alone: speedup over the xPU by target, platform and batch."""
    figure = _figure("platform")
    others = baseline_speedups()
    for axes, (row, model) in zip(figure.subplots(2, 2).ravel(), enumerate(MODELS), strict=True):
        half, printed = solved.halves[FITTED_HALF], table_three(FITTED_HALF)
        for method, name, colour in (("Elastic-SD", "Elastic-SD", BLUE), ("EAGLE3", "HB-xPU, EAGLE3", ORANGE)):
            place = METHODS.index(method)
            axes.plot(BATCHES, half.autoregressive[row, place], "--^", color=colour, markersize=3)
            axes.plot(BATCHES, half.speculative[row, place], "-", color=colour, label=name)
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
    figure = _figure("energy")
    half = solved.halves[FITTED_HALF]
    base, ours = baseline_energy(half), best_mode_energy(half)
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
    figure = _figure("locality")
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


#: Names in the paper, and devices of the catalog.
_PLATFORMS = {"xPU-PIM": "elmoe3d-xpu-pim", "xPU-LogicPIM": "elmoe3d-xpu-logic-pim", "xPU-NMP": "elmoe3d-xpu-nmp"}


class RivalStep(NamedTuple):
    """A step of decoding, "model batch"."""

    seconds: npt.NDArray[np.float64]
    accesses_j: npt.NDArray[np.float64]  # to memory, with crossing its interface
    total_j: npt.NDArray[np.float64]


@functools.cache
def baseline_speedups() -> dict[str, npt.NDArray[np.float64]]:
    """Speedups over the xPU alone by platform, "model batch"; tokens choose experts on their own."""
    alone = _step("elmoe3d-xpu").seconds
    return {name: alone / _step(device).seconds for name, device in _PLATFORMS.items()}


def best_rival_energy(*, all_energies: bool = False) -> npt.NDArray[np.float64]:
    """Joules per token on the fastest of them in each cell, "model batch": of accesses to memory, or of all components."""
    steps = [_step(device) for device in _PLATFORMS.values()]
    joules = np.stack([step.total_j if all_energies else step.accesses_j for step in steps])
    fastest = np.argmin([step.seconds for step in steps], axis=0)
    return np.take_along_axis(joules, fastest[None], axis=0)[0] / np.asarray(BATCHES)


@functools.cache
def _step(device_name: str) -> RivalStep:
    device, sizes = catalog.device(device_name), targets()

    def cost(architecture: Any, bits: Any, batch: Any) -> RivalStep:
        work = step_operators(
            architecture,
            StepShape(tokens=1.0, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=KV_BITS),
        )
        step = step_cost(device, work)
        assert step.energy is not None
        energy = step.energy
        return RivalStep(step.total_s, jnp.sum(energy.memory_j, -1) + energy.link_j, energy.total_j)  # pyright: ignore[reportArgumentType]

    cells = jax.vmap(jax.vmap(cost, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    batches = jnp.asarray(BATCHES, jnp.float32)
    columns = jax.jit(cells)(sizes.architecture, sizes.bits, batches)
    return RivalStep(*(np.asarray(column, np.float64) for column in columns))
