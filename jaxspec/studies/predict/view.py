"""What `jaxspec predict` shows: tables of numbers by draft length, step, operator, device number and batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hwmodels.numerics.units import GB, MILLI
from hwmodels.speculation.draft_cost import COMPRESSED_COPY
from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.report.columns import Column, fill, interval_in_words, read_columns, shown_columns
from jaxspec.report.formatting import fixed_or_small, milliseconds, times
from jaxspec.report.terminal import Shown, Table, note_lines
from jaxspec.results import Quantity, predicted
from jaxspec.results.network_results import Ends, PricedResult
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.given_acceptance import acceptance_line
from jaxspec.studies.predict.result import BatchRow, LengthRow, PredictResult, StepTotals

_SPEEDUP = lambda value: times(value, 3)


def _scaled(unit: float, digits: int) -> Callable[[float], str]:
    return lambda value: fixed_or_small(value / unit, digits)


_COLUMNS = Path(__file__).with_name("columns.csv")

#: Columns by draft length.
LENGTH_COLUMNS: tuple[Column[LengthRow], ...] = read_columns(_COLUMNS, "length")


def headline_in_words(result: PredictResult) -> str:
    """The main numbers with their intervals, in a sentence; empty where nothing is known to err."""
    held = result.intervals
    if held is None:
        return ""
    milli = _scaled(MILLI, 3)
    said = (
        f"{_SPEEDUP(result.speedup_vs_bf16_ar.known)}{interval_in_words(held.speedup_vs_bf16_ar, _SPEEDUP)} vs 16-bit AR",
        f"{_SPEEDUP(result.speedup_vs_stored_ar.known)}{interval_in_words(held.speedup_vs_stored_ar, _SPEEDUP)} vs stored AR",
        f"{fixed_or_small(result.tokens_per_s.number, 1)}{interval_in_words(held.tokens_per_s, _scaled(1.0, 1))} tokens/s",
        f"cycle {milli(result.cycle_s.known)}{interval_in_words(held.cycle_s, milli)} ms",
    )
    return f"{'; '.join(said)}; {held.statement}"


def step_ends_in_words(result: PredictResult, step: str) -> str:
    """The interval of a step's milliseconds; empty where there is none."""
    interval = {} if result.step_intervals is None else (result.step_intervals.value or {}).get(step, {})
    ends = Ends(low=predicted(interval.get("low_s")), high=predicted(interval.get("high_s")))
    return interval_in_words(ends, _scaled(MILLI, 3))


def _rate(row: BatchRow) -> str:
    ends = interval_in_words(row.intervals and row.intervals.tokens_per_s, _scaled(1.0, 1))
    return fixed_or_small(row.tokens_per_s.number, 1) + ends + ("" if row.fits.value else " (does not fit)")


#: Columns by batch.
BATCH_COLUMNS: tuple[Column[BatchRow], ...] = read_columns(_COLUMNS, "batch", words={"tokens_per_s": _rate})


def _energy(step: StepTotals) -> Quantity[float]:
    energy = step.energy_j
    return Quantity(None if energy.value is None else energy.value["total"], energy.status)


def _energy_in_words(step: StepTotals) -> str:
    energy_j = _energy(step).number
    return "not known" if energy_j is None else fixed_or_small(energy_j / MILLI, 1)


#: Columns of a step; the optional ones where the device has what they are of.
STEP_COLUMNS: tuple[Column[StepTotals], ...] = read_columns(
    _COLUMNS, "step", read={"energy_j": _energy}, words={"energy_j": _energy_in_words}
)


#: Step -> what it is called.
STEPS = {
    "prefill": "prefill",
    "ar_bf16": "AR step, bf16",
    "ar_stored": "AR step, stored",
    "draft": "draft step",
    "verify": "verification",
}


Result = TypeVar("Result", bound=PricedResult)


def by_device(results: Sequence[Result]) -> list[list[Result]]:
    """Results of each device, in their order: several where it is priced at several batches or contexts."""
    devices = dict.fromkeys(result.device for result in results)
    return [[result for result in results if result.device == device] for device in devices]


def bound(result: PredictResult) -> str:
    """What a cycle would take longest for alone: compute, memory, on chip (traffic there) or decode."""
    draft, verify = result.steps["draft"], result.steps["verify"]
    drafted = max(result.cycle_s.known - verify.total_s.known, 0.0) / (draft.total_s.number or math.inf)
    runs = min(drafted, result.draft_length.known)  # an engine's own time is no step's
    waits = {name: f"{name.replace(' ', '_').replace('decode', 'decoding')}_s" for name in _WAITS}
    seconds = lambda step, field: getattr(step, field).number or 0.0
    return max(_WAITS, key=lambda name: runs * seconds(draft, waits[name]) + seconds(verify, waits[name]))


_WAITS = ("memory", "compute", "on chip", "decode")


def _token_s(result: PredictResult) -> float:
    """Seconds per token of each sequence; NaN: not known."""
    rate = result.tokens_per_s.number
    return result.workload.batch.known / rate if rate else math.nan


def points(result: PredictResult) -> dict[str, list[Any]]:
    """Columns of `StudyResults.to_frame`: main numbers of a pair of batch and context, in SI."""
    load = result.workload
    numbers = ("draft_length", "tokens_per_cycle", "speedup_vs_bf16_ar", "speedup_vs_stored_ar", "tokens_per_s")
    found = {"device": result.device, "batch": load.batch.value, "context_tokens": load.context_tokens.value}
    found |= {name: getattr(result, name).value for name in numbers}
    found["token_s"] = _token_s(result)
    energy = result.energy_per_token_j.number
    found["energy_per_token_j"] = math.nan if energy is None else energy
    found |= {"held_bytes": result.held_bytes.value, "fits": result.fits.value}
    return {name: [value] for name, value in (found | {"bound": bound(result)}).items()}


def _held(result: PredictResult) -> str:
    return f"{fixed_or_small(result.held_bytes.known / GB, 1)}{'' if result.fits.value else ' (does not fit)'}"


#: Columns by pair of batch and context.
POINT_COLUMNS: tuple[Column[PredictResult], ...] = read_columns(
    _COLUMNS,
    "point",
    read={"token_s": lambda result: predicted(_token_s(result))},
    words={"held_bytes": _held, "cycle_s": bound},
    write={"workload.context_tokens": lambda count: f"{count:,.0f}"},
)


def _points(results: Sequence[PredictResult]) -> Table:
    """A row for each pair of batch and context of one device."""
    first = results[0]
    room = first.capacity_bytes.known / GB
    table = Table(
        title=f"{_head(first)}, {_stored(first)}{_drafted(first)}: {len(results)} pairs of batch and context",
        caption=f"draft length 0: no draft pays; bound: the longest wait of a cycle; the device has {room:.1f} GB; acceptance: "
        f"{first.acceptance.conditional.status}; the rest: predicted",
    )
    dim = lambda row: None if row.fits.value else "dim"
    return fill(table, POINT_COLUMNS, (("", row) for row in results), dim)


def prediction_tables(results: Sequence[PredictResult]) -> list[Table]:
    """For each device: speedup by draft length, steps, time per operator, what to change, when to speculate.

    Of several pairs of batch and context: one table with a row for each.
    """
    tables = []
    for same in by_device(results):
        if len(same) > 1:
            tables.append(_points(same))
            continue
        (result,) = same
        tables.append(_lengths(result))
        if result.acceptance.by_dataset:
            tables.append(_datasets(result))
        tables += [_steps(result), _operators(result), _sensitivity(result), _batches(result)]
    return tables


def _stored(result: PredictResult) -> str:
    """The scheme, and how the release has it where that is known."""
    if result.scheme.value == RELEASED.name and result.release:
        return result.release
    return f"{result.scheme.value}{f' ({result.release})' if result.release else ''}"


def _head(result: PredictResult) -> str:
    return f"{result.architecture} on {result.device}"


def _drafted(result: PredictResult) -> str:
    return f", drafted by {result.draft}" if result.draft not in (None, COMPRESSED_COPY.statement) else ""


def _lengths(result: PredictResult) -> Table:
    length = result.draft_length.known
    answer = f"best: {length} drafted token" + "s" * (length != 1) if result.pays.value else "no draft pays here"
    loss = "; the target is changed: not lossless" if result.lossless is False else ""
    if not result.ar_bf16_fits.value:
        loss += "; the 16-bit network does not fit the device: read that column as what a larger memory would give"
    read = result.footprint
    draft, verify, heads = read.draft_bits, read.verify_bits, (read.draft_head_bits, read.verify_head_bits)
    drafts = (
        f"draft {draft.known:.2f} ({draft.status}), " if result.steps["draft"].weight_bytes.known else ""
    )  # no lookup
    if heads[0] is not None and heads[1] is not None:
        loss = f", {heads[0].known:.2f} and {heads[1].known:.2f} per weight of the LM head{loss}"
    sure = headline_in_words(result)
    table = Table(
        title=f"{_head(result)}, {_stored(result)}{_drafted(result)}: {answer}",
        caption=(f"{sure}\n" if sure else "") + f"{drafts}verification {verify.known:.2f} "
        f"({verify.status}) bits per weight{loss}; acceptance: {result.acceptance.conditional.status}; the rest: predicted",
    )
    bold = lambda row: "bold" if row.draft_length.value == result.draft_length.value else None
    return fill(table, LENGTH_COLUMNS, (("", row) for row in result.by_draft_length), bold)


def _datasets(result: PredictResult) -> Table:
    """Tokens per cycle along a trace, of each of its data sets."""
    by_dataset = result.acceptance.by_dataset
    table = Table(title=f"tokens per cycle by data set and draft length (input: {result.acceptance.source})")
    table.add_columns("data set", *map(str, range(1, 1 + max(map(len, by_dataset.values())))))
    for name, tokens in by_dataset.items():
        table.add_row(name, *(f"{each:.3f}" for each in tokens))
    return table


def _steps(result: PredictResult) -> Table:
    fits = "fits" if result.fits.value else "DOES NOT FIT"
    longest = result.longest_context_tokens.number  # none where there is no end
    context = "any context" if longest is None else f"contexts up to {longest:,.0f} tokens"
    held = fixed_or_small(result.held_bytes.known / GB, 2)
    remarks = [f"needs {held} GB of {result.capacity_bytes.known / GB:.1f}: {fits}; {context}"]
    if (decoders := result.decoders) is not None:
        plural = "s" * (decoders.count.value != 1)
        remarks.append(
            f"{decoders.count.value:.0f} decoder{plural}, of which a draft step needs {decoders.needed_by_draft.value} not to "
            f"wait and a verification {decoders.needed_by_verify.value}"
        )
    if (use := result.experts) is not None:
        touched, pool = use.touched.known, use.draft_pool.known  # no pool: a draft without experts
        drafts = [f"draft {touched['draft']:.1f} of {pool:.4g}"] if pool else []
        words = [f"AR {touched['ar_stored']:.1f}", *drafts, f"verification {touched['verify']:.1f}"]
        said = f"experts of a layer touched: {', '.join(words)}"
        if result.placement.value is not None:
            near = use.read_from_first_memory.known
            shares = ", ".join("no expert" if share is None else f"{100 * share:.0f} %" for share in near.values())
            said += f"; read from the first memory: {shares}"
        remarks.append(said)
    if (area := result.area_m2.number) is not None:
        remarks.append(f"chip with decoders {area * 1e6:.1f} mm2")
    if result.power_w is not None and (power := result.power_w.number) is not None:
        remarks.append(f"{power:.3g} W with everything busy")
    if result.price_usd is not None and (price := result.price_usd.number) is not None:
        remarks.append(f"die and memories {price:,.0f} USD")
    energies = result.energy_per_token_j.number, result.energy_per_token_ar_bf16_j.number
    if None not in energies:
        said = [f"{fixed_or_small(energy / MILLI, 1)}" for energy in energies if energy is not None]
        remarks.append(f"{said[0]} mJ per token against {said[1]} of 16-bit AR")
    table = Table(title=f"{_head(result)}: steps (predicted)", caption="; ".join(remarks))
    columns = shown_columns(STEP_COLUMNS, result.steps.values())
    table.add_columns("step", *(column.heading for column in columns))
    for name, label in STEPS.items():
        total, *others = (column.text(result.steps[name]) for column in columns)
        table.add_row(label, f"{total}{step_ends_in_words(result, name)}", *others)
    return table


def _operators(result: PredictResult) -> Table:
    table = Table(title=f"{_head(result)}: time per operator, ms (predicted)")
    table.add_columns("operator", *STEPS.values())
    seconds = [result.operators.known[step] for step in STEPS]
    for operator in STEP_PARTS:
        times = [step.get(operator, 0.0) for step in seconds]
        if any(times):
            table.add_row(operator, *(milliseconds(time) for time in times))
    table.add_row("total", *(milliseconds(sum(step.values())) for step in seconds), style="bold")
    return table


#: Results whose slopes are shown, as people say them.
METRICS = {"speedup_vs_bf16_ar": "speedup", "tokens_per_s": "tokens/s", "energy_per_token_j": "energy per token"}


def _sensitivity(result: PredictResult) -> Table:
    table = Table(
        title=f"{_head(result)}: what to change in the hardware",
        caption="percent by which a result grows if the number grows by one percent (predicted); for numbers of a matrix "
        "unit, whose tiles change in jumps, the mean slope between 10 % less and 10 % more",
    )
    by_metric = result.sensitivity.known
    table.add_columns("number of the device", *(METRICS[metric] for metric in by_metric))
    leaves = dict.fromkeys(leaf for values in by_metric.values() for leaf in values)  # in one order, also of equal ones
    shown = sorted(leaves, key=lambda leaf: -max(abs(values.get(leaf, 0.0)) for values in by_metric.values()))
    for leaf in shown:
        if max(abs(values.get(leaf, 0.0)) for values in by_metric.values()) >= 5e-4:
            table.add_row(leaf, *(f"{values.get(leaf, 0.0):+.3f}" for values in by_metric.values()))
    return table


def _batches(result: PredictResult) -> Table:
    table = Table(
        title=f"{_head(result)}: when to speculate, by batch (predicted)",
        caption="draft length 0: autoregressive decoding of the stored network is faster",
    )
    dim = lambda row: None if row.fits.value else "dim"
    return fill(table, BATCH_COLUMNS, (("", row) for row in result.by_batch), dim)


def shown(results: Sequence[PredictResult]) -> Shown:
    """Tables of a prediction for the terminal."""
    first = (acceptance_line(one.acceptance.conditional, one.acceptance.source) for one in results)
    tables = prediction_tables(results)
    return Shown([result.plain() for result in results], tables, note_lines(results), first=list(dict.fromkeys(first)))
