"""Figures 4, 9, 12 and 13 from the model, with what the paper prints on them. Matplotlib figures, not yet saved."""

from __future__ import annotations

import functools

import numpy as np
from matplotlib.figure import Figure

from experiments.papers.elmoe3d.calibration import FITTED_HALF
from experiments.papers.elmoe3d.model import devices
from experiments.papers.elmoe3d.networks import (
    CONTEXT_TOKENS,
    DRAFT_KV_BITS,
    INT8_BITS,
    KV_BITS,
    LOW_BITS,
    eagle_head,
    small_model,
    target,
    target_bits,
)
from experiments.papers.elmoe3d.printed import BATCHES, CAPACITIES, METHODS, MODELS, table_three
from experiments.papers.elmoe3d.results import Solved
from hwmodels import EXPERT_OPERATORS, KINDS, OPERATORS, step_operators
from hwmodels.network.architecture import EXPERT_MATRICES
from hwmodels.step.capacity import held_bytes
from jaxspec.report.figures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, new_figure, styled

__all__ = ["intensity_figure", "latency_figure", "mapping_figure", "roofline_figure", "table_figure"]

METHOD_COLOURS = dict(zip(METHODS, (ORANGE, GREEN, PURPLE, BLUE), strict=True))
_GIGA, _MILLI = 1e9, 1e-3
_QWEN = next(iter(MODELS))


@styled
def intensity_figure(solved: Solved) -> Figure:
    """Fig. 4: arithmetic intensity of dense layers and experts; experts of a verification, and what EAGLE gains by it."""
    figure = new_figure(
        "Mixture of experts and speculation do not fit",
        "Left: operations per byte of weights, DeepSeek-V2-Lite. Middle: experts of a layer that one step touches, "
        "GLM-4.7-Flash, by the fitted routing. Right: EAGLE3 with 8 GB; lines from the model, fitted to these dots.",
        height_inches=3.6,
    )
    intensity, touched, speedup = figure.subplots(1, 3)
    batches = np.array([1, 2, 4, 8, 16, 32, 64])
    model, is_expert = "DeepSeek-V2-Lite", np.isin(OPERATORS, EXPERT_OPERATORS)
    for name, some, colour in (
        ("dense", ~is_expert & ~np.isin(OPERATORS, ("embed", "attention", "norm")), BLUE),
        ("experts", is_expert, VERMILLION),
    ):
        works = [
            step_operators(
                target(model),
                tokens=1,
                batch=float(batch),
                context_tokens=CONTEXT_TOKENS,
                weight_bits=target_bits(model),
                kv_bits=KV_BITS,
            )
            for batch in batches
        ]
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
    printed, found = table_three(FITTED_HALF), solved.halves[FITTED_HALF]
    for row, (name, colour) in enumerate(zip(MODELS, (BLUE, GREEN, ORANGE, PURPLE), strict=True)):
        gain = found.speculative[row, 0] / found.autoregressive[row, 0]
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
    figure = new_figure(
        "Coupled and decoupled memory",
        "Rooflines of the 8 GB chip at 8-bit weights. Idle PEs take bandwidth of the hybrid-bonded memory along, "
        "none of the external one.",
        height_inches=3.4,
    )
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


@functools.cache
def _parts_gb(model: str, batch: int) -> dict[str, float]:
    """Gigabytes of what is static, of KV and of both drafts of their own."""
    work = step_operators(
        target(model),
        tokens=1,
        batch=batch,
        context_tokens=CONTEXT_TOKENS,
        weight_bits=target_bits(model) | {"embed": 0.0},
        kv_bits=KV_BITS,
    )
    assert work.stored is not None
    stored = work.stored
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
    figure = new_figure(
        "Hybrid-bonded memory and cycles by method",
        "Qwen3-30B-A3B, MT-Bench, batch 16, 8 GB, from the model fitted to this half. Accepted tokens follow from the "
        "printed acceptance.",
        height_inches=3.9,
    )
    memory, cycle = figure.subplots(1, 2)
    row, column, found = list(MODELS).index(_QWEN), BATCHES.index(16), solved.halves[FITTED_HALF]
    parts, expert = _parts_gb(_QWEN, 16), _expert_gb(_QWEN)
    for place, method in enumerate(METHODS):
        steps = found.steps[method]
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
        accepted = f"{found.tokens[row, place, column] - 1:.1f} accepted"
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
    figure = new_figure(
        "Draft and verification latency",
        "Qwen3-30B-A3B, MT-Bench. Ten draft steps and one verification; the 8 GB half is fitted, the 4 GB half predicted.",
        height_inches=5.4,
    )
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
    figure = new_figure(
        "Table 3: the model and the printed speedups",
        "Left: 8 GB, to which sixteen numbers are fitted. Right: 4 GB, predicted. Dots: autoregressive decoding; "
        "crosses: speculation.",
        height_inches=3.8,
    )
    for axes, gb in zip(figure.subplots(1, 2), CAPACITIES, strict=True):
        printed, found = table_three(gb), solved.halves[gb]
        for place, (method, colour) in enumerate(METHOD_COLOURS.items()):
            for field, mark in (("autoregressive", "o"), ("speculative", "x")):
                theirs, ours = getattr(printed, field)[:, place].ravel(), getattr(found, field)[:, place].ravel()
                axes.plot(theirs, ours, mark, color=colour, markersize=4, label=method if mark == "o" else None)
        ends = np.array([0.5, 16.0])
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="printed", ylabel="model")
        axes.set_title(f"{gb} GB", loc="left", fontsize=10)
        axes.legend(fontsize=7)
    return figure
