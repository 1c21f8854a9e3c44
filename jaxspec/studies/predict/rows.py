"""Rows of a prediction's tables, by draft length and by batch, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from hwmodels import SpeculationResult
from hwmodels.analysis.design_point import DesignPoint
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from jaxspec.results import given, predicted
from jaxspec.studies.predict.intervals import row_ends
from jaxspec.studies.predict.result import BatchRow, LengthRow

__all__ = ["batch_rows", "length_rows"]


def length_rows(result: SpeculationResult, numbers: dict[str, LogNormal]) -> list[LengthRow]:
    """A row for every draft length.

    Args:
        numbers: with their errors, leaves "gamma"; empty where nothing is known to err.
    """
    return [
        LengthRow(
            draft_length=given(length),
            tokens_per_cycle=predicted(float(result.tokens_per_cycle[length])),
            cycle_s=predicted(float(result.cycle_s[length])),
            speedup_vs_bf16_ar=predicted(float(result.speedup_vs_bf16_ar[length])),
            speedup_vs_stored_ar=predicted(float(result.speedup_vs_stored_ar[length])),
            intervals=row_ends(numbers, length),
        )
        for length in range(len(result.draft_lengths))
    ]


def batch_rows(batches: Sequence[int], points: DesignPoint, numbers: dict[str, LogNormal]) -> list[BatchRow]:
    """A row for every batch, at its best draft length.

    Args:
        points: leaves "batch".
        numbers: likewise, as of `length_rows`.
    """
    return [
        BatchRow(
            batch=given(batch),
            draft_length=predicted(int(points.draft_length[place])),
            speedup_vs_bf16_ar=predicted(float(points.speedup_vs_bf16_ar[place])),
            speedup_vs_stored_ar=predicted(float(points.speedup_vs_stored_ar[place])),
            tokens_per_s=predicted(float(points.tokens_per_s[place])),
            fits=predicted(bool(points.held_bytes[place] <= points.capacity_bytes[place])),
            intervals=row_ends(numbers, place),
        )
        for place, batch in enumerate(batches)
    ]
