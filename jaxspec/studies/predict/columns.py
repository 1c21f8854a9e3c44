"""Numbers of a prediction that are shown."""

from __future__ import annotations

from collections.abc import Callable

from hwmodels.numerics.units import GB, GIGA, MILLI
from jaxspec.report.columns import Column, interval_in_words
from jaxspec.report.formatting import fixed, fixed_or_small, times
from jaxspec.results import Quantity, predicted
from jaxspec.results.intervals import Ends
from jaxspec.studies.predict.result import BatchRow, LengthRow, PredictResult, StepTotals

__all__ = ["BATCH_COLUMNS", "LENGTH_COLUMNS", "STEP_COLUMNS", "headline_in_words", "step_ends_in_words"]

_SPEEDUP = lambda value: times(value, 3)


def _scaled(unit: float, digits: int) -> Callable[[float], str]:
    return lambda value: fixed_or_small(value / unit, digits)


_WHOLE = lambda value: fixed(value, 0)

#: Columns by draft length.
LENGTH_COLUMNS = (
    Column[LengthRow]("draft length", "draft length", "0: autoregressive", lambda row: row.draft_length, _WHOLE),
    Column[LengthRow]("tokens/cycle", "tokens/cycle", "expected", lambda row: row.tokens_per_cycle, _scaled(1.0, 3)),
    Column[LengthRow](
        "cycle, ms",
        "cycle, ms",
        "draft steps and verification",
        lambda row: row.cycle_s,
        _scaled(MILLI, 3),
        interval=lambda row: row.intervals and row.intervals.cycle_s,
    ),
    Column[LengthRow](
        "vs 16-bit AR",
        "vs 16-bit AR",
        "speedup",
        lambda row: row.speedup_vs_bf16_ar,
        _SPEEDUP,
        interval=lambda row: row.intervals and row.intervals.speedup_vs_bf16_ar,
    ),
    Column[LengthRow](
        "vs stored AR",
        "vs stored AR",
        "speedup",
        lambda row: row.speedup_vs_stored_ar,
        _SPEEDUP,
        interval=lambda row: row.intervals and row.intervals.speedup_vs_stored_ar,
    ),
)


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
    found = {} if result.step_intervals is None else (result.step_intervals.value or {}).get(step, {})
    ends = Ends(low=predicted(found.get("low_s")), high=predicted(found.get("high_s")))
    return interval_in_words(ends, _scaled(MILLI, 3))


def _rate(row: BatchRow) -> str:
    ends = interval_in_words(row.intervals and row.intervals.tokens_per_s, _scaled(1.0, 1))
    return fixed_or_small(row.tokens_per_s.number, 1) + ends + ("" if row.fits.value else " (does not fit)")


#: Columns by batch.
BATCH_COLUMNS = (
    Column[BatchRow]("batch", "batch", "sequences", lambda row: row.batch, _WHOLE),
    Column[BatchRow]("draft length", "draft length", "best", lambda row: row.draft_length, _WHOLE),
    Column[BatchRow](
        "vs 16-bit AR",
        "vs 16-bit AR",
        "speedup",
        lambda row: row.speedup_vs_bf16_ar,
        _SPEEDUP,
        interval=lambda row: row.intervals and row.intervals.speedup_vs_bf16_ar,
    ),
    Column[BatchRow](
        "vs stored AR",
        "vs stored AR",
        "speedup",
        lambda row: row.speedup_vs_stored_ar,
        _SPEEDUP,
        interval=lambda row: row.intervals and row.intervals.speedup_vs_stored_ar,
    ),
    Column[BatchRow](
        "tokens/s, all", "tokens/s, all", "of all sequences", lambda row: row.tokens_per_s, _scaled(1.0, 1), words=_rate
    ),
)


def _energy(step: StepTotals) -> Quantity[float]:
    energy = step.energy_j
    return Quantity(None if energy.value is None else energy.value["total"], energy.status)


def _energy_in_words(step: StepTotals) -> str:
    found = _energy(step).number
    return "not known" if found is None else fixed_or_small(found / MILLI, 1)


#: Columns of a step; the optional ones where the device has what they are of.
STEP_COLUMNS = (
    Column[StepTotals]("ms", "ms", "in all", lambda step: step.total_s, _scaled(MILLI, 3)),
    Column[StepTotals]("compute", "compute", "ms", lambda step: step.compute_s, _scaled(MILLI, 3)),
    Column[StepTotals]("memory", "memory", "ms", lambda step: step.memory_s, _scaled(MILLI, 3)),
    Column[StepTotals]("on chip", "on chip", "ms", lambda step: step.on_chip_s, _scaled(MILLI, 3), optional=True),
    Column[StepTotals]("decode", "decode", "ms", lambda step: step.decoding_s, _scaled(MILLI, 3)),
    Column[StepTotals]("encode", "encode", "ms", lambda step: step.encoding_s, _scaled(MILLI, 3), optional=True),
    Column[StepTotals]("GFLOP", "GFLOP", "", lambda step: step.flops, _scaled(GIGA, 2)),
    Column[StepTotals]("weights, GB", "weights, GB", "read", lambda step: step.weight_bytes, _scaled(GB, 3)),
    Column[StepTotals]("KV, GB", "KV, GB", "read and written", lambda step: step.kv_bytes, _scaled(GB, 3)),
    Column[StepTotals]("mJ", "mJ", "energy", _energy, _scaled(MILLI, 1), words=_energy_in_words),
)
