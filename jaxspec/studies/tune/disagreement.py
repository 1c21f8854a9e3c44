"""Where Cassandra's objective J and the predicted speedup choose different points of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxspec.report.formatting import fixed, times
from jaxspec.studies.tune.result import GridPoint, TuneResult

__all__ = ["by_j", "disagreement_in_words", "disagreement_lines"]


def by_j(result: TuneResult) -> GridPoint | None:
    """The grid point with the largest J; None where the scheme has none."""
    return _best(result, lambda point: point.relative_j.number)


def disagreement_in_words(result: TuneResult) -> str:
    """A sentence on both choices; empty where either is not known."""
    chosen, fastest = by_j(result), _best(result, lambda point: point.speedup_vs_bf16_ar.number)
    if chosen is None or fastest is None or chosen.speedup_vs_bf16_ar.number is None:
        return ""
    if chosen is fastest:
        return f"objective J (Cassandra, Eq. 2) chooses the grid point that is predicted to be the fastest: {_knobs(chosen)}"
    return (
        f"objective J (Cassandra, Eq. 2) chooses another grid point than the predicted speedup: {_knobs(chosen)}, predicted "
        f"{times(chosen.speedup_vs_bf16_ar.number)}, instead of {_knobs(fastest)}, {times(fastest.speedup_vs_bf16_ar.number)}; "
        "it knows no device, no draft length and no bits of bitmap and exponents"
    )


def disagreement_lines(results: Sequence[TuneResult]) -> list[str]:
    """A line for each device, for the terminal."""
    said = {result.device: disagreement_in_words(result) for result in results}
    return [f"{device}: {words}" for device, words in said.items() if words]


def _best(result: TuneResult, number: Callable[[GridPoint], float | None]) -> GridPoint | None:
    """The first point with the largest number."""
    known = [point for point in result.grid if number(point) is not None]
    return max(known, key=lambda point: number(point) or 0.0, default=None)


def _knobs(point: GridPoint) -> str:
    """The point's knobs as text."""
    return ", ".join(f"{name} {fixed(value.number, 1).removesuffix('.0')}" for name, value in point.knobs.items())
