"""What a knob of a compressed draft is: its help, default, range and grid, stated once, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

from jaxspec.partial_files import read_toml_beside

__all__ = [
    "CUT_AND_PRUNE",
    "EXPERT_POOL",
    "HEAD_KNOBS",
    "KNOB_GROUPS",
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


def _own(name: str, *, grid: Iterable[float] = (), **facts: Any) -> KnobSpec:
    """A knob of `knobs.toml`."""
    return KnobSpec(name, grid=tuple(grid), **facts)


#: Groups of our own knobs, as `schemes.toml` calls them.
KNOB_GROUPS: dict[str, tuple[KnobSpec, ...]] = {
    group: tuple(_own(name, **facts) for name, facts in knobs.items())
    for group, knobs in read_toml_beside(__file__, "knobs.toml").items()
}

#: Cassandra's knobs,
CUT_AND_PRUNE = KNOB_GROUPS["cut_and_prune"]

#: and the same of the LM head.
HEAD_KNOBS = KNOB_GROUPS["head"]

#: Bits of a slice.
SLICE_BITS = KNOB_GROUPS["slice_bits"][0]

#: Experts that a draft chooses among.
EXPERT_POOL = KNOB_GROUPS["expert_pool"][0]


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
