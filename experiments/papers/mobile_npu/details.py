"""Numbers beside the tables: statements of the text, generations, matrices, variants, and the bars."""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.papers.mobile_npu import tables
from experiments.papers.mobile_npu.accuracy import accuracies, accuracy_statements
from experiments.papers.mobile_npu.decoding import (
    BATCHES,
    PROMPTS,
    Decoding,
    decode,
    fit,
    fitted_numbers,
    gemv_seconds,
    gpu_footprint,
    matrices,
    prefill_tokens_per_s,
    softmax_speedups,
)
from experiments.papers.mobile_npu.tables import Solved, head_share, largest_cheap_batch
from experiments.papers.mobile_npu.versions import (
    CONTEXT,
    DATA,
    GENERATIONS,
    GPU,
    MODELS,
    PAPER,
    calibrated_device,
    claim,
    networks,
    printed,
)
from experiments.reproduce.paper import Outcome, Statement, detail, missed_statements, statement, statements_detail
from hwmodels import OPERATORS, Architecture, Device, catalog, step_operators, uniform_weight_bits
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu, attention_times, stage_times
from hwmodels.network.operators import StepShape
from hwmodels.numerics.fast_compile import jit_fast_compile

__all__ = ["DETAILS", "HEAD_SHARE_BAR", "MILD", "QUERIES", "attention_split", "missed_bars", "statements"]


# Statements of the text on its figures, without a number: what the model has, and whether each holds.

#: Least share of the vocabulary projection at 16 samples, percent, and the largest decline that counts as mild.
HEAD_SHARE_BAR, MILD = 45.0, 0.2

#: Query lengths of Fig. 8.
QUERIES = (1, 2, 4, 8, 16)


@jit_fast_compile
def _split(device: Device, network: Architecture, queries: float) -> list[jax.Array]:
    work = step_operators(
        network,
        StepShape(
            tokens=queries,
            batch=1.0,
            context_tokens=CONTEXT,
            weight_bits=uniform_weight_bits(16.0),
            kv_bits=16.0,
            visible_new_tokens=1.0,
        ),
    )
    unit, shapes, i = device.matrix_unit.on(device), work.shapes, OPERATORS.index("attention")
    assert shapes is not None
    stages = stage_times(unit, shapes.m[i], shapes.k[i], shapes.n[i])
    return [stages.matrix_s, stages.dma_s, attention_times(unit, work).softmax_s]


def attention_split(device: Device, model: str = "Qwen2.5-1.5B") -> np.ndarray:
    """Seconds of products, of copying keys and values and of softmax for one key-value head, "query part", over `QUERIES`."""
    splits = [_split(device, networks()[model], float(queries)) for queries in QUERIES]
    return np.array([[float(part) for part in one] for one in splits])


_statement = functools.partial(statement, Path(__file__).parent)


def _decoding(solved: Solved) -> list[Statement]:
    run = {(g, m): d for (g, m), d in solved.items() if tables.fits(m, catalog.device(GENERATIONS[g]), CONTEXT)}
    rates = np.array([one.tokens_per_s() for one in run.values()])
    gains = rates[..., -1] / rates[..., 0]
    shares = {name: head_share(solved, name) for name in GENERATIONS}
    lowest = min(shares["V75"])
    ran = {g: [s for m, s in zip(MODELS, shares[g], strict=True) if (g, m) in run] for g in shares}
    declines = 1.0 - rates[:, -1] / rates[:, 0]
    step = solved["V75", "Qwen2.5-1.5B"]
    cores = 4.0 * step.head_share[0]
    return [
        _statement(
            "rises", f"{gains.min():.1f}x to {gains.max():.1f}x at 16 samples", np.all(np.diff(rates, axis=-1) > 0)
        ),
        _statement("not_linearly", f"at most {gains.max():.1f}x of 16x", np.all(gains < BATCHES[-1])),
        _statement(
            "logits_v75",
            f"{lowest:.0f} % to {max(shares['V75']):.0f} %",
            lowest >= HEAD_SHARE_BAR,
            least=HEAD_SHARE_BAR,
        ),
        _statement(
            "logits_others",
            "; ".join(f"{g} {min(ran[g]):.0f} % to {max(ran[g]):.0f} %" for g in ("V73", "V79")),
            min(*ran["V73"], *ran["V79"]) >= HEAD_SHARE_BAR,
            least=HEAD_SHARE_BAR,
        ),
        _statement(
            "cores",
            f"{cores[0]:.1f} to {cores[-1]:.1f} cores on average",
            np.all(np.diff(cores) > 0) and cores[-1] <= claim("NPU025"),
        ),
        _statement(
            "prompts",
            f"by {declines.min():.1%} to {declines.max():.1%}",
            np.all((declines > 0) & (declines < MILD)),
            long=PROMPTS[-1],
            short=PROMPTS[0],
            mild=MILD,
        ),
    ]


def _kernels() -> list[Statement]:
    split = attention_split(calibrated_device(fit()))
    products, _, softmax = (split / split.sum(axis=-1, keepdims=True)).T
    short, long = softmax_speedups(fit())[:, 0], softmax_speedups(fit())[:, -1]
    return [
        _statement(
            "attention",
            f"products at most {products.max():.0%}, softmax {softmax[0]:.0%} to {softmax[-1]:.0%}",
            np.all(np.diff(softmax) > 0) and softmax[-1] > 0.5 and products.max() < softmax[-1] / 2,
        ),
        _statement(
            "queries",
            f"by {1 - short[-1] / short[0]:.0%} at 1024 keys, {1 - long[-1] / long[0]:.0%} at 16384",
            short[-1] < short[0] and long[-1] / long[0] > short[-1] / short[0],
        ),
    ]


def _power(solved: Solved) -> list[Statement]:
    small, large = (solved["V75", name].power_w() for name in ("Qwen2.5-1.5B", "Qwen2.5-3B"))
    assert small is not None
    assert large is not None
    return [
        _statement(
            "small_power",
            f"{small[-1, 0]:.2f} W to {small[-1, -1]:.2f} W",
            small[-1, -1] > small[-1, 0] and np.max(small) <= claim("NPU018"),
        ),
        _statement(
            "large_power",
            f"{large[-1].min():.2f} W to {large[-1].max():.2f} W",
            np.all(np.abs(large[-1] / claim("NPU019") - 1.0) < 0.03),
        ),
        _statement(
            "energy", f"up to {largest_cheap_batch(solved):.0f} samples", largest_cheap_batch(solved) >= claim("NPU020")
        ),
    ]


def _gpu(solved: Solved) -> list[Statement]:
    device, stored = catalog.device(GPU), gpu_footprint()
    model = "Qwen2.5-1.5B"
    gpu = decode(device, networks()[model], PROMPTS, stored).tokens_per_s()[0]
    npu = solved["V75", model].tokens_per_s()[0]
    ahead = [str(batch) for batch, ours, theirs in zip(BATCHES, npu, gpu, strict=True) if ours > theirs]
    prefill = {
        name: (
            prefill_tokens_per_s(npu_device(), network, PROMPTS[0]),
            prefill_tokens_per_s(device, network, PROMPTS[0], stored),
        )
        for name, network in networks().items()
    }
    return [
        _statement("gpu_first", f"{gpu[0]:.1f} against {npu[0]:.1f} tokens/s", gpu[0] > npu[0]),
        _statement(
            "npu_batches",
            f"at {', '.join(ahead) or 'none'}; at 8: {npu[3]:.0f} against {gpu[3]:.0f} tokens/s",
            npu[-1] > gpu[-1] and npu[-2] > gpu[-2],
        ),
        _statement(
            "npu_prompts",
            f"{min(a / b for a, b in prefill.values()):.1f}x to {max(a / b for a, b in prefill.values()):.1f}x",
            all(ours > theirs for ours, theirs in prefill.values()),
        ),
    ]


def npu_device() -> Device:
    """V75 with the four fitted numbers."""
    return calibrated_device(fit())


def _addresses() -> list[Statement]:
    runs = {
        name: [model for model in MODELS if tables.fits(model, catalog.device(entry), CONTEXT)]
        for name, entry in GENERATIONS.items()
    }
    return [
        _statement(
            "three_billion",
            f"V73 runs {', '.join(runs['V73'])}",
            runs["V75"] == runs["V79"] == list(MODELS) and runs["V73"] == ["Qwen2.5-1.5B", "Llama3.2-1B"],
        )
    ]


def statements(solved: Solved) -> list[Statement]:
    """All of them."""
    return [*_decoding(solved), *_kernels(), *_power(solved), *_gpu(solved), *_addresses()]


#: Largest relative errors of range ends and of the session's memory.
_ENDS_BAR, _MEMORY_BAR = 0.15, 0.03


def _matrices() -> list[Mapping[str, Any]]:
    seconds = gemv_seconds(calibrated_device(fit()))
    return [
        one
        | {"microseconds": seconds["ours"][i] * 1e6}
        | {name: seconds[name][i] / seconds["ours"][i] for name in seconds if name != "ours"}
        for i, one in enumerate(matrices())
    ]


def _variants() -> list[Mapping[str, Any]]:
    """Ends under other readings: a scatter's printed extremes, and 8-bit codes that cost what their registers of weights do."""
    device = calibrated_device(fit())
    npu = device.matrix_unit
    table = npu.vector.exponential
    readings = {"the model": device}
    for end in ("min", "max"):
        packets = printed("hexagon_specs", f"latency_{end}", component="vgather")
        changed = npu.replace(vector=npu.vector.replace(exponential=table.replace(gather_packets=packets)))
        readings[f"a scatter of {packets:g} packets"] = dataclasses.replace(device, matrix_unit=changed)
    # Both widths then give four registers of weights in as many packets: one code counts as 4 bits whatever its width.
    flat = npu.replace(vector=npu.vector.replace(layout=npu.vector.layout.replace(metadata_bits=5.0)))
    readings["8-bit weights cost what 4-bit ones do"] = dataclasses.replace(device, matrix_unit=flat)
    rows = []
    for name, changed in readings.items():
        seconds = gemv_seconds(changed)
        ratios = {version: seconds[version] / seconds["ours"] for version in ("baseline", "HMX layout")}
        slower = float(np.mean(seconds["ours"] / seconds["no dequantization"])) - 1.0
        ends = {f"{version} {end.__name__}": float(end(r)) for version, r in ratios.items() for end in (np.min, np.max)}
        rows.append({"reading": name, "slower_percent": 100.0 * slower} | ends)
    return rows


def _generations(outcome: Outcome) -> list[Mapping[str, Any]]:
    devices = {cell["npu_arch"]: cell for cell in _table3()}
    rows = []
    for generation, entry in GENERATIONS.items():
        device = catalog.device(entry)
        for model in MODELS:
            step = outcome.solved[generation, model]
            (npu_alone,) = decode(_without_host(device), networks()[model], PROMPTS[:1]).tokens_per_s()
            rows.append(
                devices[generation]
                | {
                    "model": model,
                    "fits": "yes" if tables.fits(model, device, CONTEXT) else "no",
                    "session_mib": tables.session_mib(model, CONTEXT),
                    "one_tokens_per_s": step.tokens_per_s()[0, 0],
                    "sixteen_tokens_per_s": step.tokens_per_s()[0, -1],
                    "head_percent": 100.0 * step.head_share[0, -1],
                    "power_w": step.power_w()[0, -1],
                    "joules_per_token": step.energy_j[0, -1] / 16.0,
                    "npu_logits_tokens_per_s": npu_alone[-1],
                }
                | _watts(step, device)
            )
    return rows


def _without_host(device: Device) -> Device:
    """The phone whose NPU computes logits itself, at the rates of its other products."""
    assert isinstance(device.matrix_unit, MatrixVectorNpu)
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, host=None))


def _watts(step: Decoding, device: Device) -> dict[str, float]:
    """Mean power at 16 samples by cause: the CPU while it computes logits, the NPU, the memory, and all else of the phone."""
    assert isinstance(device.matrix_unit, MatrixVectorNpu)
    assert device.matrix_unit.host is not None
    assert step.energies_j is not None
    of = {name: float(joules[0, -1] / step.step_s[0, -1]) for name, joules in step.energies_j.items()}
    cpu = float(device.matrix_unit.host.power_w * step.head_share[0, -1])
    arithmetic = of["arithmetic_j"]
    return {"cpu_w": cpu, "npu_w": arithmetic - cpu, "memory_w": of["memory_j"], "phone_w": of["static_j"]}


def _table3() -> list[dict[str, Any]]:
    """Table 3: phone, chip, NPU."""
    with (DATA / f"{PAPER}_table3_devices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = dict.fromkeys(row["device"] for row in rows)
    return [{"device": name} | {r["metric"]: r["value"] for r in rows if r["device"] == name} for name in names]


_detail = functools.partial(detail, Path(__file__).parent)

DETAILS = (
    _detail(
        "fitted",
        lambda outcome: fitted_numbers(),
        lambda value: [{"name": name, "value": number} for name, number in value.items()],
    ),
    statements_detail(statements),
    _detail("accuracy", lambda outcome: accuracy_statements(accuracies())),
    _detail("generations", _generations),
    _detail("matrices", lambda outcome: _matrices()),
    _detail("variants", lambda outcome: _variants()),
)


def missed_bars(outcome: Outcome) -> list[str]:
    """A line for each error beyond its bar, and for each statement that does not hold."""
    missed = [
        f"{row['table']} {row['conditions'].get('over', '')} {row['conditions'].get('end', '')}: "
        f"{row['model_value']:.3g} for {row['paper_value']:g}"
        for table in ("fig14", "fig15")
        for row in outcome.of(table)
        if row["relative_error"] > _ENDS_BAR
    ]
    missed += [
        f"session of {row['conditions']['model']}: {row['model_value']:.0f} MiB for {row['paper_value']:g}"
        for row in outcome.of("memory_power")
        if row["metric"] == "dmabuf_memory" and row["relative_error"] > _MEMORY_BAR
    ]
    return (
        missed
        + missed_statements(outcome)
        + [
            f"does not hold: {one['says']} ({one['where']}): {one['ours']}"
            for one in outcome.details.get("accuracy", ())
            if not one["holds"]
        ]
    )
