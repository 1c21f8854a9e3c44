"""What a knob of a compressed draft is: its help, default, range and grid, stated once, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

__all__ = [
    "CUT_AND_PRUNE",
    "EXPERT_POOL",
    "HEAD_KNOBS",
    "MANTISSA_BITS",
    "MAX_DRAFT_LENGTH",
    "SLICE_BITS",
    "KnobSpec",
    "Rounding",
    "SharedExponents",
    "StoredDtype",
]

#: Longest draft that tuning considers.
MAX_DRAFT_LENGTH = 8

#: The 16-bit types in which a network can be stored.
StoredDtype = Literal["bfloat16", "float16"]

#: Mantissa bits that a value of either stores: as many can be cut.
MANTISSA_BITS: dict[StoredDtype, int] = {"bfloat16": 7, "float16": 10}


@dataclasses.dataclass(frozen=True)
class KnobSpec:
    """One number that decides a draft: configuration, command line, tuning and figures read it here.

    Attributes:
        help: what it is, for `--help`.
        default: where a user says nothing.
        low, high: range, both ends included.
        per: "matrix": every matrix has its own, "layer kind"; "layer": one of a layer's KV cache, " layer"; "experts": one of a
            layer's experts, " layer", without effect on layers that have none; "head": one of the LM head, a single number.
        whole: a hard configuration rounds it.
        grid: values of the uniform grid that tuning is compared with; empty where the grid keeps the default.
        reads_less: whether a draft reads less as the knob rises, rather than as it falls.
        cut_of: type whose mantissa bits are cut, and `high` says how many there are; None of every other knob.
    """

    name: str
    help: str
    default: float
    low: float
    high: float
    per: Literal["matrix", "layer", "experts", "head"] = "matrix"
    whole: bool = False
    grid: tuple[float, ...] = ()
    cut_of: StoredDtype | None = None
    reads_less: bool = True

    @property
    def range_text(self) -> str:
        """Its range in words, and why it ends there."""
        why = "" if self.cut_of is None else f", the mantissa bits of {self.cut_of}"
        return f"{self.low:g} to {self.high:g}{why}"

    def of_dtype(self, dtype: StoredDtype) -> KnobSpec:
        """The knob of a network that is stored in this type: as many mantissa bits can be cut as it has.

        The grid moves along, so that its drafts keep as many mantissa bits; the default is the same number of cut bits.
        """
        if self.cut_of is None or self.cut_of == dtype:
            return self
        more = MANTISSA_BITS[dtype] - MANTISSA_BITS[self.cut_of]
        grid = tuple(cut + more for cut in self.grid)
        return dataclasses.replace(self, high=self.high + more, grid=grid, cut_of=dtype)


#: What a knob is that cuts mantissa bits, in the registry: of a network stored in bfloat16.
_CUT: dict[str, Any] = {
    "default": 4.0,
    "low": 0.0,
    "high": float(MANTISSA_BITS["bfloat16"]),
    "whole": True,
    "cut_of": "bfloat16",
}

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
        grid=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
        **_CUT,
    ),
    KnobSpec(
        "kv_prune",
        "Share of the KV cache that the draft does not read, per token.",
        default=0.0,
        low=0.0,
        high=0.95,
        per="layer",
    ),
    KnobSpec("kv_cut_bits", "Mantissa bits of the KV cache that the draft does not read.", per="layer", **_CUT),
)

#: The same of the LM head, which the paper leaves at 16 bits, so that its grid does not vary them.
HEAD_KNOBS = (
    KnobSpec(
        "head_prune",
        "Share of each row of the LM head that the draft does not read.",
        default=0.4,
        low=0.0,
        high=0.95,
        per="head",
    ),
    KnobSpec("head_cut_bits", "Mantissa bits of the LM head that the draft does not read.", per="head", **_CUT),
)

#: The bit axis of ELMoE-3D, whose draft reads 4 bits. Below 2 a slice has a sign alone, above 6 it leaves nothing to save.
SLICE_BITS = KnobSpec(
    "slice_bits",
    "Most significant bits of an 8-bit weight that the draft reads.",
    default=4.0,
    low=2.0,
    high=6.0,
    whole=True,
    grid=(2.0, 3.0, 4.0, 5.0, 6.0),
    reads_less=False,
)

#: The expert axis: a share that fits any network. A token's own number of experts is the least that a pool can have.
EXPERT_POOL = KnobSpec(
    "expert_pool",
    "Experts of a layer that the draft chooses among: 0 as many as a token uses, 1 all of them; nothing in dense layers.",
    default=0.5,
    low=0.0,
    high=1.0,
    per="experts",
    grid=(0.0, 0.25, 0.5, 1.0),
    reads_less=False,
)


#: What becomes of bits that do not fit.
Rounding = Literal["toward_zero", "nearest_even"]


@dataclasses.dataclass(frozen=True)
class SharedExponents:
    """How 32 consecutive values of a row are stored with one exponent (see `jaxspec.formats.mx_truncated`).

    Attributes:
        mantissa_bits: of an element, leading one included; a sign comes on top.
        rounding: of what a value loses beside a larger one of its block.
    """

    mantissa_bits: int
    rounding: Rounding
