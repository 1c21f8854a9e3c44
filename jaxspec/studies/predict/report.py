"""The tables of `jaxspec predict`."""

from __future__ import annotations

from typing import Any

from hwmodels import OPERATORS
from hwmodels.numerics.units import GB, MILLI
from jaxspec.report.notes import note_lines
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table

__all__ = ["prediction_tables", "shown"]

#: Step -> what it is called.
STEPS = {
    "prefill": "prefill",
    "ar_bf16": "AR step, bf16",
    "ar_stored": "AR step, stored",
    "draft": "draft step",
    "verify": "verification",
}


def prediction_tables(entries: list[dict[str, Any]]) -> list[Table]:
    """For each device: speedup by draft length, steps, time per operator, what to change, when to speculate."""
    tables = []
    for entry in entries:
        tables += [_lengths(entry), _steps(entry), _operators(entry), _sensitivity(entry), _batches(entry)]
    return tables


def _head(entry: dict[str, Any]) -> str:
    return f"{entry['architecture']} on {entry['device']}"


def _columns(table: Table, *names: str) -> Table:
    for name in names:
        table.add_column(name, justify="right")
    return table


def _lengths(entry: dict[str, Any]) -> Table:
    verdict = f"best: {entry['draft_length']} drafted tokens" if entry["pays"] else "no draft pays here"
    scheme = "" if entry["scheme"] is None else f", {entry['scheme']}"
    loss = "; the target is changed: not lossless" if entry["lossless"] is False else ""
    if not entry["ar_bf16_fits"]:
        loss += "; the 16-bit network does not fit the device: read that column as what a larger memory would give"
    bits, status = entry["footprint"], entry["status"]["footprint"]
    table = Table(
        title=f"{_head(entry)}{scheme}: {verdict}",
        caption=f"draft {bits['draft_bits']:.2f} ({status['draft_bits']}), verification {bits['verify_bits']:.2f} "
        f"({status['verify_bits']}) bits per weight{loss}; acceptance: input; the rest: predicted",
    )
    _columns(table, "draft length", "tokens/cycle", "cycle, ms", "vs 16-bit AR", "vs stored AR")
    for row in entry["by_draft_length"]:
        table.add_row(
            str(row["draft_length"]),
            f"{row['tokens_per_cycle']:.3f}",
            f"{row['cycle_s'] / MILLI:.3f}",
            f"{row['speedup_vs_bf16_ar']:.3f}x",
            f"{row['speedup_vs_stored_ar']:.3f}x",
            style="bold" if row["draft_length"] == entry["draft_length"] else None,
        )
    return table


def _steps(entry: dict[str, Any]) -> Table:
    fits = "fits" if entry["fits"] else "DOES NOT FIT"
    longest = entry["longest_context_tokens"]
    context = "any context" if longest == float("inf") else f"contexts up to {longest:,.0f} tokens"
    table = Table(
        title=f"{_head(entry)}: steps (predicted)",
        caption=f"{entry['held_bytes'] / GB:.2f} GB held of {entry['capacity_bytes'] / GB:.1f}: {fits}; {context}",
    )
    table.add_column("step")
    _columns(table, "ms", "compute", "memory", "decode", "GFLOP", "weights, GB", "KV, GB", "mJ")
    for name, label in STEPS.items():
        step = entry["steps"][name]
        energy = step["energy_j"]
        table.add_row(
            label,
            *(f"{step[key] / MILLI:.3f}" for key in ("total_s", "compute_s", "memory_s", "decoding_s")),
            f"{step['flops'] / 1e9:.2f}",
            f"{step['weight_bytes'] / GB:.3f}",
            f"{step['kv_bytes'] / GB:.3f}",
            "not known" if energy is None else f"{energy['total'] / MILLI:.1f}",
        )
    if entry["decoders"] is not None:
        found = entry["decoders"]
        table.caption = (
            f"{table.caption}; {found['count']:.0f} decoders, of which a draft step needs {found['needed_by_draft']} not to "
            f"wait and a verification {found['needed_by_verify']}"
        )
    if entry["area_m2"] is not None:
        table.caption = f"{table.caption}; chip with decoders {entry['area_m2'] * 1e6:.1f} mm2"
    if entry["energy_per_token_j"] is not None:
        energy, plain = entry["energy_per_token_j"], entry["energy_per_token_ar_bf16_j"]
        table.caption = f"{table.caption}; {energy / MILLI:.1f} mJ per token against {plain / MILLI:.1f} of 16-bit AR"
    return table


def _operators(entry: dict[str, Any]) -> Table:
    table = Table(title=f"{_head(entry)}: time per operator, ms (predicted)")
    table.add_column("operator")
    _columns(table, *STEPS.values())
    for operator in OPERATORS:
        times = [entry["operators"][step][operator] for step in STEPS]
        if any(times):
            table.add_row(operator, *(f"{time / MILLI:.3f}" for time in times))
    table.add_row("total", *(f"{sum(entry['operators'][step].values()) / MILLI:.3f}" for step in STEPS), style="bold")
    return table


def _sensitivity(entry: dict[str, Any]) -> Table:
    table = Table(
        title=f"{_head(entry)}: what to change in the hardware",
        caption="percent by which a result grows if the number grows by one percent; of a matrix unit, whose tiles are "
        "counted in steps, the mean slope between 10 % less and more (predicted)",
    )
    table.add_column("number of the device")
    found = entry["sensitivity"]
    _columns(table, *found)
    leaves = {leaf for values in found.values() for leaf in values}
    shown = sorted(leaves, key=lambda leaf: -max(abs(values.get(leaf, 0.0)) for values in found.values()))
    for leaf in shown:
        if max(abs(values.get(leaf, 0.0)) for values in found.values()) >= 5e-4:
            table.add_row(leaf, *(f"{values.get(leaf, 0.0):+.3f}" for values in found.values()))
    return table


def _batches(entry: dict[str, Any]) -> Table:
    table = Table(
        title=f"{_head(entry)}: when to speculate, by batch (predicted)",
        caption="draft length 0: autoregressive decoding of the stored network is faster",
    )
    _columns(table, "batch", "draft length", "vs 16-bit AR", "vs stored AR", "tokens/s, all")
    for row in entry["by_batch"]:
        table.add_row(
            str(row["batch"]),
            str(row["draft_length"]),
            f"{row['speedup_vs_bf16_ar']:.3f}x",
            f"{row['speedup_vs_stored_ar']:.3f}x",
            f"{row['tokens_per_s']:.1f}" + ("" if row["fits"] else " (does not fit)"),
            style=None if row["fits"] else "dim",
        )
    return table


def shown(entries: list[dict[str, Any]]) -> Shown:
    """Tables of a prediction for the terminal."""
    return Shown(entries, prediction_tables(entries), note_lines(entries))
