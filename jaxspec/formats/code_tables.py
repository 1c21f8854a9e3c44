"""Sixteen-entry tables for 4-bit codes (INT4, FP4, NF4, IQ4_NL): encoding to the nearest entry, decoding by lookup.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.2.2: a 16-entry lookup turns 4-bit codes into
values, so that another code needs other table contents only. The entries' own sources stand beside them.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, UInt8

__all__ = ["FP4", "INT4", "IQ4_NL", "NF4", "CodeTable", "decode", "encode", "expected_bits", "levels", "num_bits"]

CODE_BITS = 4

NUM_LEVELS = 1 << CODE_BITS


@dataclasses.dataclass(frozen=True)
class CodeTable:
    """What each of the sixteen 4-bit codes stands for; hashable, so it may be a static argument.

    Attributes:
        name: for reports.
        levels: the value of code 0, 1, ... 15, exact in float32; in any order.

    Raises:
        ValueError: not sixteen levels, or one that float32 does not hold.
    """

    name: str
    levels: tuple[float, ...]

    def __post_init__(self):
        if len(self.levels) != NUM_LEVELS:
            raise ValueError(f"table {self.name!r} has {len(self.levels)} levels; give {NUM_LEVELS}, one for each code")
        inexact = [level for level in self.levels if float(np.float32(level)) != level]
        if inexact:
            raise ValueError(f"table {self.name!r} has levels that float32 does not hold: {inexact}; round them first")


def _normal_float_levels() -> tuple[float, ...]:
    """NF4: quantiles of the normal distribution, eight steps above zero and seven below, over the largest.

    Source: Dettmers et al. 2023 (QLoRA), arXiv:2305.14314, section 3 and appendix E. The outermost probability is the mean
    of 1 − 1/(2·15) and 1 − 1/(2·16). The published constants come from it with seven digits and float32 steps counted
    from both ends; done the same way, all sixteen come out bit for bit: −1.0, −0.6961928009986877, ... 0.0,
    0.07958029955625534, ... 0.7229568362236023, 1.0.
    """
    outermost, middle = np.float32(0.9677083), np.float32(0.5)
    quantile = statistics.NormalDist().inv_cdf

    def half(steps):
        step = np.float32((middle - outermost) / np.float32(steps))
        count = np.arange(steps, dtype=np.float32)
        from_ends = np.where(count < (steps + 1) // 2, outermost + step * count, middle - step * (steps - count))
        return [quantile(float(probability)) for probability in from_ends]

    ascending = np.sort(np.array([*half(8), 0.0, *(-value for value in half(7))], np.float32))
    return tuple(float(level) for level in ascending / ascending[-1])


#: Code c is c − 8: llama.cpp's Q4_0, and the lookup table of the paper (5.2.2).
INT4 = CodeTable("int4", tuple(float(level) for level in range(-8, 8)))

#: E2M1 by sign, exponent (bias 1) and mantissa: OCP Microscaling Formats 1.0, section 5.3.3. Code 8 is −0.
FP4 = CodeTable(
    "fp4", tuple(sign * level for sign in (1.0, -1.0) for level in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
)

#: Quantiles of the normal distribution, see `_normal_float_levels`.
NF4 = CodeTable("nf4", _normal_float_levels())

#: llama.cpp, ggml-common.h, `kvalues_iq4nl`.
IQ4_NL = CodeTable(
    "iq4_nl",
    tuple(float(level) for level in (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)),
)


@functools.cache
def _thresholds(table: CodeTable) -> tuple[np.ndarray, np.ndarray]:
    """Smallest float32 that each next distinct level takes, and the codes of the levels in rising order."""
    ascending, codes = np.unique(np.array(table.levels, np.float64), return_index=True)
    middle = (ascending[1:] + ascending[:-1]) / 2
    threshold = middle.astype(np.float32)
    # A middle of two float32 levels may need one bit more: the next float32 above it is the first on its upper side.
    threshold = np.where(threshold < middle, np.nextafter(threshold, np.float32(np.inf)), threshold)
    return threshold, codes.astype(np.uint8)


def levels(table: CodeTable, *, dtype: DTypeLike = jnp.float32) -> Float[Array, " level"]:
    """The table's sixteen levels as an array, rounded where `dtype` does not hold them (of these tables NF4 in float16)."""
    return jnp.asarray(np.array(table.levels, np.float32).astype(dtype))


def encode(x: Float[Array, "*b"], table: CodeTable) -> UInt8[Array, "*b"]:
    """The code of the nearest level.

    Args:
        x: compared in float32; beyond the outermost levels it gets their codes. NaN is not modelled (it gets the lowest
            level's code).
        table: static.
    Returns:
        "*b", 0 to 15. Of two levels equally near the larger wins. Of two equal levels the lower code: FP4's −0 (8) is never
        given, −0.0 and what rounds to it become +0.
    Departs: OCP rounds FP4's ties to the even mantissa; here ties go up in every table, as in llama.cpp.
    """
    threshold, codes = _thresholds(table)
    least = jax.lax.broadcast_to_rank(jnp.asarray(threshold), x.ndim + 1)
    rank = jnp.sum(x.astype(jnp.float32)[..., None] >= least, axis=-1, dtype=jnp.int32)
    return jnp.asarray(codes)[rank]


def decode(codes: UInt8[Array, "*b"], table: CodeTable, *, dtype: DTypeLike = jnp.float32) -> Float[Array, "*b"]:
    """The level of each code by lookup; only a code's low four bits count."""
    return levels(table, dtype=dtype)[(codes & 0xF).astype(jnp.int32)]


def num_bits(codes: UInt8[Array, "*b"]) -> int:
    """Bits of stored codes; the table is the decoder's and not counted."""
    return CODE_BITS * codes.size


def expected_bits(num_values: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Bits of so many codes, fractions allowed: linear, so its gradient is 4 bits per value everywhere."""
    return CODE_BITS * num_values
