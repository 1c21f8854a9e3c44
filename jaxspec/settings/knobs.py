"""What a knob of a compressed draft is: its help, default, range and grid, stated once, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["CUT_AND_PRUNE", "MAX_DRAFT_LENGTH", "KnobSpec"]

#: Longest draft that tuning considers.
MAX_DRAFT_LENGTH = 8


@dataclasses.dataclass(frozen=True)
class KnobSpec:
    """One number that decides a draft: configuration, command line, tuning and figures read it here.

    Attributes:
        help: what it is, for `--help`.
        default: where a user says nothing.
        low, high: range, both ends included.
        per: "matrix": every matrix has its own, "layer kind"; "layer": one of a layer's KV cache, " layer".
        whole: a hard configuration rounds it.
        grid: values of the uniform grid that tuning is compared with; empty where the grid keeps the default.
    """

    name: str
    help: str
    default: float
    low: float
    high: float
    per: Literal["matrix", "layer"] = "matrix"
    whole: bool = False
    grid: tuple[float, ...] = ()


#: Cassandra's knobs. The defaults are its "40 %/4 bits" (VI-A): weights 40 % pruned and 4 bits cut, KV cache not pruned and 4
#: bits cut. The grid is that of VII-B.2. A draft without any weight of a matrix has no use, so pruning ends at 95 %.
CUT_AND_PRUNE = (
    KnobSpec(
        "weight_prune",
        "Share of each row's weights that the draft does not read.",
        default=0.4,
        low=0.0,
        high=0.95,
        grid=(0.3, 0.4, 0.5, 0.6),
    ),
    KnobSpec(
        "weight_cut_bits",
        "Mantissa bits of a weight that the draft does not read.",
        default=4.0,
        low=0.0,
        high=7.0,
        whole=True,
        grid=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
    ),
    KnobSpec(
        "kv_prune",
        "Share of the KV cache that the draft does not read, per token.",
        default=0.0,
        low=0.0,
        high=0.95,
        per="layer",
    ),
    KnobSpec(
        "kv_cut_bits",
        "Mantissa bits of the KV cache that the draft does not read.",
        default=4.0,
        low=0.0,
        high=7.0,
        per="layer",
        whole=True,
    ),
)
