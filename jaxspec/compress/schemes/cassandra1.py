"""Cassandra-1: a draft of the largest values with their high mantissa bits and unary-coded exponents; lossless.

Pruning takes the lowest scores of each row: Wanda's for weights, the magnitude for keys and values of a token.

Source: Cassandra, IV-B; Sun et al. 2023, arXiv:2306.11695 (Wanda).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt16

from hwmodels import Footprint
from jaxspec.compress.cut import blend_cuts, soft_truncate
from jaxspec.compress.footprint import (
    BitsPerValue,
    ExponentCounts,
    PrunedExponents,
    bits_per_value,
    count_exponents,
    soft_bitmap,
    uniform,
)
from jaxspec.compress.rematerialised import made_in_blocks
from jaxspec.compress.schemes.described import Described
from jaxspec.compress.schemes.gaussian import gaussian_patterns
from jaxspec.compress.schemes.interface import CompressedKV, CompressedMatrix, OwnKnobs
from jaxspec.compress.selection import hard_mask, keep_largest, log_of, num_pruned, soft_mask, wanda_score
from jaxspec.formats.patterns import BFLOAT16, NumberFormat, format_of, from_bits, target_format, to_bits
from jaxspec.formats.split import draft_values, split_tensor
from jaxspec.formats.truncation import high_part
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CASSANDRA1", "CASSANDRA1_CODED", "Cassandra1"]


class _Rows(NamedTuple):
    """Stored patterns with the importance of each value."""

    bits: UInt16[Array, "row column"]
    log_score: Float[Array, "row column"]
    number_format: NumberFormat


@dataclasses.dataclass(frozen=True)
class Cassandra1(Described):
    """A scheme (see `Scheme`).

    Attributes:
        pruned_exponents: how the exponents of pruned values are stored: "raw" as in the paper (V-A), or "coded".
    """

    pruned_exponents: PrunedExponents = "raw"

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Array:
        """The norms: a value's score is |W| times its channel's."""
        del matrix
        return channel_norm

    def hard(self, matrix: Float[Array, "row column"], prepared: Array, knobs: OwnKnobs) -> CompressedMatrix:
        """Whole cut bits (rounded here), round(p n) values of each row pruned; weights in bfloat16."""
        scored = partial(_by_wanda, norm=prepared)
        return self._hard(matrix, scored, knobs["weight_prune"], knobs["weight_cut_bits"])

    def soft(
        self,
        matrix: Float[Array, "row column"],
        prepared: Array,
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
    ) -> CompressedMatrix:
        """Masks by a sigmoid of the log-score margin; fractional cuts blend their neighbours."""
        scored = partial(_by_wanda, norm=prepared)
        return self._soft(matrix, scored, knobs["weight_prune"], knobs["weight_cut_bits"], temperature)

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """The stored matrix itself."""
        return matrix

    def prepare_kv(self, rows: Float[Array, "*b slot column"]) -> UInt16[Array, "*b slot column"]:
        """Stored patterns; a value's score is its magnitude."""
        return to_bits(rows.astype(jnp.bfloat16))

    def soft_kv(
        self, prepared: UInt16[Array, "*b slot column"], knobs: OwnKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedKV:
        """As for weights."""
        made = self._soft(_as_rows(prepared), _by_magnitude, knobs["kv_prune"], knobs["kv_cut_bits"], temperature)
        return CompressedKV(made.values.reshape(prepared.shape), made.bits)

    def hard_kv(self, prepared: UInt16[Array, "*b slot column"], knobs: OwnKnobs) -> CompressedKV:
        """As for weights; rows are float32."""
        made = self._hard(_as_rows(prepared), _by_magnitude, knobs["kv_prune"], knobs["kv_cut_bits"])
        return CompressedKV(made.values.reshape(prepared.shape).astype(jnp.float32), made.bits)

    def encode_kv(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """No ranks are prepared, nothing is sorted; rows keep their type."""
        bits = to_bits(rows.astype(jnp.bfloat16))
        keep = rows.shape[-1] - num_pruned(knobs["kv_prune"], rows.shape[-1])
        cut = jnp.round(knobs["kv_cut_bits"]).astype(jnp.int32)
        return jnp.where(
            keep_largest(bits & 0x7FFF, keep), from_bits(high_part(bits, cut), BFLOAT16).astype(rows.dtype), 0
        )

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """Counted on the model's values, pruned by magnitude."""
        prune = np.array([knobs["weight_prune"], knobs["kv_prune"]], np.float32)
        cut_bits = np.array([knobs["weight_cut_bits"], knobs["kv_cut_bits"]], np.float32)
        found = self._of_model(gaussian_patterns(), prune, cut_bits)
        return uniform(found.draft[0], found.target[0], found.draft[1], found.target[1])

    # One program, where operation by operation would compile seventy.
    @partial(jax.jit, static_argnums=0)
    def _of_model(
        self,
        rows: UInt16[Array, "row column"],
        prune: Float[Array, " case"],
        cut_bits: Float[Array, " case"],
    ) -> BitsPerValue:
        scored = _by_magnitude(rows)

        def count(prune: Array, cut_bits: Array) -> BitsPerValue:
            counts = self._counts(scored, hard_mask(scored.log_score, prune))
            # A ratio that prunes no value of these rows prunes some of longer ones.
            return self._bits(counts, rows.size, cut_bits, prune > 0, BFLOAT16)

        return jax.vmap(count)(prune, cut_bits)

    def _hard(self, stored: Array, scored: Callable[[Array], _Rows], prune: Array, cut_bits: Array) -> CompressedMatrix:
        cut = jnp.round(cut_bits).astype(jnp.int32)

        def make(part: Array) -> tuple[Array, ExponentCounts]:
            rows = scored(part)
            kept = hard_mask(rows.log_score, prune)
            values = draft_values(split_tensor(from_bits(rows.bits, rows.number_format), kept, cut))
            return values, self._counts(rows, kept)

        values, counts = made_in_blocks(make, stored)
        bitmap = num_pruned(prune, stored.shape[-1]) > 0
        bits = self._bits(counts, stored.size, cut.astype(jnp.float32), bitmap, format_of(values.dtype))
        return CompressedMatrix(values, bits)

    def _soft(
        self,
        stored: Array,
        scored: Callable[[Array], _Rows],
        prune: Array,
        cut_bits: Array,
        temperature: Float[Array, ""] | float,
    ) -> CompressedMatrix:
        mix = blend_cuts(cut_bits, temperature)

        def make(part: Array) -> tuple[Array, ExponentCounts]:
            rows = scored(part)
            # Scores are float32; gradients may be checked in 64 bits.
            kept = soft_mask(rows.log_score.astype(prune.dtype), prune, temperature)
            values = kept * soft_truncate(rows.bits, mix, kept.dtype, rows.number_format)
            return values, self._counts(rows, kept)

        values, counts = made_in_blocks(make, stored)
        bitmap, number_format = soft_bitmap(prune, temperature), target_format(stored.dtype)
        return CompressedMatrix(values, self._bits(counts, stored.size, mix.mean, bitmap, number_format))

    def _counts(self, rows: _Rows, kept: Array) -> ExponentCounts:
        weight = kept if jnp.issubdtype(kept.dtype, jnp.floating) else kept.astype(jnp.float32)
        return count_exponents(rows.bits.reshape(-1), weight.reshape(-1), self.pruned_exponents, rows.number_format)

    def _bits(
        self, counts: ExponentCounts, values: int, cut_bits: Array, bitmap: Array, number_format: NumberFormat
    ) -> BitsPerValue:
        return bits_per_value(counts, values, cut_bits, bitmap.astype(cut_bits.dtype), number_format)


def _by_wanda(values: Float[Array, "row column"], norm: Float[Array, " column"]) -> _Rows:
    """Weights with their Wanda scores."""
    number_format = target_format(values.dtype)
    values = values.astype(number_format.value_dtype)
    return _Rows(to_bits(values), log_of(wanda_score(values, norm)), number_format)


def _as_rows(rows: UInt16[Array, "*b column"]) -> UInt16[Array, "row column"]:
    return rows.reshape(-1, rows.shape[-1])


def _by_magnitude(bits: UInt16[Array, "row column"]) -> _Rows:
    """Values whose score is their magnitude."""
    return _Rows(bits, log_of(jnp.abs(from_bits(bits, BFLOAT16).astype(jnp.float32))), BFLOAT16)


#: Exponents of pruned values as they are.
CASSANDRA1 = Cassandra1(SCHEME_FACTS["cassandra1"])
#: Exponents of pruned values coded too.
CASSANDRA1_CODED = Cassandra1(SCHEME_FACTS["cassandra1-coded"], pruned_exponents="coded")
