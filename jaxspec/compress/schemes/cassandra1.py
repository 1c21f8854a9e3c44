"""Cassandra-1: kept values with unary-coded exponents; the target is the stored network, bit for bit.

Source: Cassandra, IV-B and Fig. 5(b, c).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Array, Float, Int, UInt16

from jaxspec.compress.footprint import ExponentCounts, PrunedExponents, bits_per_value, count_exponents
from jaxspec.compress.schemes.nested import nested_scheme
from jaxspec.formats.patterns import BitsRead, NumberFormat, high_part, midpoint, target_format
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CASSANDRA1", "CASSANDRA1_CODED", "CASSANDRA1_HEAD", "CASSANDRA1_MIDPOINT", "UnaryExponents"]


@dataclasses.dataclass(frozen=True)
class UnaryExponents:
    """An `ExponentCoding`: exponents of kept values as unary codewords.

    Attributes:
        pruned: how the exponents of pruned values are stored: "raw" as in the paper (V-A), or "coded".
        at_midpoint: whether the draft takes a truncated value for the middle of what it can stand for, not for its least
            magnitude as in the paper.
    """

    pruned: PrunedExponents = "raw"
    at_midpoint: bool = False

    def number_format(self, dtype: Any) -> NumberFormat:
        """Float16 where that is stored, bfloat16 for everything else."""
        return target_format(dtype)

    def target(self, values: Float[Array, "*b column"]) -> Float[Array, "*b column"]:
        """The stored values themselves."""
        return values

    def cut(
        self, bits: UInt16[Array, "*b column"], cut_bits: Int[Array, ""], number_format: NumberFormat
    ) -> UInt16[Array, "*b column"]:
        """Low mantissa bits zeroed, or the highest of them set."""
        high = high_part(bits, cut_bits, number_format=number_format)
        return midpoint(high, cut_bits.astype(bits.dtype), number_format) if self.at_midpoint else high

    def count(
        self,
        bits: UInt16[Array, "row column"],
        kept: Float[Array, "row column"],
        number_format: NumberFormat,
        counted: Float[Array, "row 1"] | float,
    ) -> ExponentCounts:
        """How often each exponent occurs."""
        pruned = counted - kept
        return count_exponents(bits.reshape(-1), kept.reshape(-1), self.pruned, number_format, pruned.reshape(-1))

    def bits_read(
        self,
        counts: ExponentCounts,
        shape: tuple[Float[Array, ""] | int, int],
        cut_bits: Float[Array, ""],
        bitmap: Float[Array, ""],
        number_format: NumberFormat,
    ) -> BitsRead:
        """See `bits_per_value`."""
        return bits_per_value(counts, shape[0] * shape[1], cut_bits, bitmap, number_format)


#: Exponents of pruned values as they are.
CASSANDRA1 = nested_scheme(SCHEME_FACTS["cassandra1"], UnaryExponents())
#: Exponents of pruned values coded too.
CASSANDRA1_CODED = nested_scheme(SCHEME_FACTS["cassandra1-coded"], UnaryExponents("coded"))
#: Truncated values at the middle of their intervals, which costs no bits.
CASSANDRA1_MIDPOINT = nested_scheme(SCHEME_FACTS["cassandra1-midpoint"], UnaryExponents(at_midpoint=True))
#: The LM head too, with knobs of its own.
CASSANDRA1_HEAD = nested_scheme(SCHEME_FACTS["cassandra1-head"], UnaryExponents(), head=CASSANDRA1)
