"""Result of `jaxspec tune` for one device."""

from __future__ import annotations

import dataclasses

from jaxspec.results import UNKNOWN, Quantity, Record, inline_dict_field
from jaxspec.results.network_results import ConfigurationsResult

__all__ = ["GridPoint", "OnCalibration", "TuneResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridPoint(Record):
    """One point of the uniform grid, on calibration text, with its best draft length.

    Attributes:
        relative_j: Cassandra's objective over that of an undivided draft of which everything is accepted (see `relative_j`);
            unknown for schemes that it does not speak of.
        knobs: those that the grid varies.
    """

    alpha_token: Quantity[float] = UNKNOWN
    bits_per_weight: Quantity[float] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    relative_j: Quantity[float] = UNKNOWN
    knobs: dict[str, Quantity[float]] = inline_dict_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnCalibration(Record):
    """One configuration on validation windows of the calibration text, beside held-out prompts.

    It lies between the windows that knobs are tuned on: no gradient step saw it.

    Attributes:
        speedup_vs_bf16_ar: predicted from the acceptance there.
        gap: by how much that is more than the configuration's own, on held-out prompts; a share.
        tuned_vs_this: speed of the tuned draft over this one's there.
        optimism: by how much that is more than the same ratio on held-out prompts; a share. Part of the gap is that one text is
            easier than the other; this is what choosing by a finite text overrates, and the texts' own noise.
    """

    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    gap: Quantity[float] = UNKNOWN
    tuned_vs_this: Quantity[float] = UNKNOWN
    optimism: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneResult(ConfigurationsResult):
    """Result of tuning: the configurations "default", "j_grid" (where asked for), "grid", "uniform" and "tuned", and the grid.

    Attributes:
        objective: that was tuned for.
        on_calibration: by configuration.
    """

    objective: str | None = None
    on_calibration: dict[str, OnCalibration] = dataclasses.field(default_factory=dict)
    grid: list[GridPoint] = dataclasses.field(default_factory=list)
