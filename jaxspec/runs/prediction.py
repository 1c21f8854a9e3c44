"""`jaxspec predict`: shapes, device, footprint and acceptance in; times and speedups out. No network is run."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

import hwmodels
from jaxspec.errors import InputError
from jaxspec.report.save import save_figure
from jaxspec.runs.config import CommonConfig, build_config
from jaxspec.runs.setup import resolve_pricing

_MAX_LENGTH = 64


def _conditional(acceptance: str, max_draft_length: int) -> list[float]:
    try:
        numbers = [float(part) for part in acceptance.split(",")]
    except ValueError as error:
        raise InputError(f"acceptance is {acceptance!r}; give numbers from 0 to 1, separated by commas") from error
    if not all(0 <= number <= 1 for number in numbers):
        raise InputError(f"acceptance is {acceptance!r}; allowed are numbers from 0 to 1")
    if not 1 <= max_draft_length <= _MAX_LENGTH:
        raise InputError(f"max draft length is {max_draft_length}; allowed are 1 to {_MAX_LENGTH}")
    return numbers * max_draft_length if len(numbers) == 1 else numbers


def predict(
    *,
    architecture: str | None = None,
    device: str | None = None,
    batch: int | None = None,
    context: int | None = None,
    acceptance: str = "0.8",
    draft_bits: float = 5.11,
    verify_bits: float = 13.9,
    draft_kv_bits: float = 6.85,
    verify_kv_bits: float = 10.85,
    max_draft_length: int = 8,
) -> list[dict[str, Any]]:
    """One entry per device.

    Args:
        acceptance: alpha_token, or one conditional per position.
        draft_bits, verify_bits: per weight of the layers' matrices; embeddings, norms and head are read at 16.
    Raises:
        InputError: a name, a number or a file that cannot be used.
    """
    widths = dict(
        draft_bits=draft_bits, verify_bits=verify_bits, draft_kv_bits=draft_kv_bits, verify_kv_bits=verify_kv_bits
    )
    for name, bits in widths.items():
        if not (math.isfinite(bits) and 0 < bits <= 64):
            raise InputError(f"{name} is {bits:g}; allowed is more than 0 to 64 bits")
    config = build_config(
        CommonConfig, {"architecture": architecture, "device": device, "batch": batch, "context": context}
    )
    conditional = _conditional(acceptance, max_draft_length)
    footprint = hwmodels.Footprint(
        draft_weight_bits=hwmodels.uniform_weight_bits(draft_bits, hwmodels.LAYER_MATRICES),
        target_weight_bits=hwmodels.uniform_weight_bits(verify_bits, hwmodels.LAYER_MATRICES),
        draft_kv_bits=draft_kv_bits,
        target_kv_bits=verify_kv_bits,
    )
    pricings = [resolve_pricing(config, name, None) for name in config.device]

    @jax.jit
    def run(pricing):
        result = hwmodels.speculation_speedup(
            pricing.device,
            pricing.architecture,
            acceptance=hwmodels.Acceptance(conditional=jnp.asarray(conditional)),
            workload=pricing.workload,
            footprint=footprint,
        )
        chosen = hwmodels.best(result)
        work = {
            "ar_bf16": hwmodels.decode_operators(
                pricing.architecture, pricing.workload, footprint=hwmodels.uniform_footprint(16.0)
            ),
            "draft": hwmodels.draft_operators(pricing.architecture, pricing.workload, footprint=footprint),
            "verify": hwmodels.verify_operators(
                pricing.architecture,
                pricing.workload,
                footprint=footprint,
                verify_tokens=chosen.draft_length.astype(jnp.float32) + 1.0,
            ),
        }
        times = {name: hwmodels.work_time(pricing.device, step) for name, step in work.items()}
        return result, chosen, times

    entries = []
    for name, pricing in zip(config.device, pricings, strict=True):
        result, chosen, times = jax.device_get(run(pricing))
        entries.append(
            {
                "schema_version": 1,
                "architecture": config.architecture,
                "device": name,
                "workload": {"batch": config.batch, "context_tokens": config.context},
                "footprint": widths,
                "acceptance": {"conditional": conditional},
                "draft_length": int(chosen.draft_length),
                "pays": int(chosen.draft_length) > 0,
                "speedup_vs_bf16_ar": float(chosen.speedup_vs_bf16_ar),
                "speedup_vs_stored_ar": float(chosen.speedup_vs_stored_ar),
                "tokens_per_cycle": float(chosen.tokens_per_cycle),
                "cycle_s": float(chosen.cycle_s),
                "ar_bf16_s": float(result.ar_bf16_s),
                "ar_stored_s": float(result.ar_stored_s),
                "by_draft_length": [
                    {
                        "draft_length": i,
                        "tokens_per_cycle": float(result.tokens_per_cycle[i]),
                        "cycle_s": float(result.cycle_s[i]),
                        "speedup_vs_bf16_ar": float(result.speedup_vs_bf16_ar[i]),
                        "speedup_vs_stored_ar": float(result.speedup_vs_stored_ar[i]),
                    }
                    for i in range(len(conditional) + 1)
                ],
                "operators": {
                    step: dict(zip(hwmodels.OPERATORS, time.operator_s.tolist(), strict=True))
                    for step, time in times.items()
                },
                "status": {"acceptance": "input", "footprint": "input", "everything else": "predicted"},
            }
        )
    return entries


def prediction_tables(entries: list[dict[str, Any]]) -> list[Any]:
    """Two tables per device: speedup by draft length, time per operator."""
    from rich.table import Table

    tables = []
    for entry in entries:
        head = f"{entry['architecture']} on {entry['device']}"
        verdict = f"best: {entry['draft_length']} drafted tokens" if entry["pays"] else "no draft pays here"
        table = Table(title=f"{head}: {verdict}", caption="acceptance and footprint: input; the rest: predicted")
        for column in ("draft length", "tokens/cycle", "cycle, ms", "vs 16-bit AR", "vs stored AR"):
            table.add_column(column, justify="right")
        for row in entry["by_draft_length"]:
            mark = "bold" if row["draft_length"] == entry["draft_length"] else None
            table.add_row(
                str(row["draft_length"]),
                f"{row['tokens_per_cycle']:.3f}",
                f"{row['cycle_s'] * 1e3:.3f}",
                f"{row['speedup_vs_bf16_ar']:.3f}x",
                f"{row['speedup_vs_stored_ar']:.3f}x",
                style=mark,
            )
        tables.append(table)
        table = Table(title=f"{head}: time per operator, ms (predicted)")
        table.add_column("operator")
        for step in entry["operators"]:
            table.add_column(step, justify="right")
        for operator in hwmodels.OPERATORS:
            table.add_row(operator, *(f"{times[operator] * 1e3:.3f}" for times in entry["operators"].values()))
        table.add_row("total", *(f"{sum(times.values()) * 1e3:.3f}" for times in entry["operators"].values()))
        tables.append(table)
    return tables


def prediction_figure(entries: list[dict[str, Any]], path: str) -> None:
    """Speedup over draft length, and time per operator, for each device; the suffix of `path` names the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for entry in entries:
        rows = entry["by_draft_length"]
        lengths, speedups = [r["draft_length"] for r in rows], [r["speedup_vs_bf16_ar"] for r in rows]
        left.plot(lengths, speedups, marker="o", label=entry["device"])
    left.set(xlabel="draft length (0: autoregressive)", ylabel="speedup over 16-bit AR (predicted)")
    left.legend()
    bottom = [0.0] * (3 * len(entries))
    bars = [f"{step}\n{entry['device']}" for entry in entries for step in entry["operators"]]
    for operator in hwmodels.OPERATORS:
        heights = [times[operator] * 1e3 for entry in entries for times in entry["operators"].values()]
        right.bar(bars, heights, bottom=bottom, label=operator)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    right.set(ylabel="time of one step, ms (predicted)")
    right.tick_params(axis="x", labelsize=6)
    right.legend(fontsize=6, ncols=2)
    save_figure(figure, path)
