"""Result of `jaxspec tune` for one device."""

from __future__ import annotations

import dataclasses

from jaxspec.results import UNKNOWN, Quantity, Record, spread_field
from jaxspec.results.network_results import ConfigurationsResult

__all__ = ["GridPoint", "TuneResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridPoint(Record):
    """One point of the uniform grid, on calibration text, with its best draft length.

    Attributes:
        knobs: those that the grid varies.
    """

    alpha_token: Quantity[float] = UNKNOWN
    bits_per_weight: Quantity[float] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    knobs: dict[str, Quantity[float]] = spread_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneResult(ConfigurationsResult):
    """What tuning found: the configurations "default", "grid", "uniform" and "tuned", and the grid.

    Attributes:
        objective: that was tuned for.
    """

    objective: str | None = None
    grid: list[GridPoint] = dataclasses.field(default_factory=list)
