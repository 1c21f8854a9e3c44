"""Drafts of the largest values of each row, with their high mantissa bits; how exponents are stored is a part of its own.

Pruning takes the lowest scores of each row: Wanda's for weights, the magnitude for keys and values of a token. Scores are those
of the *target's* values, so that a target's draft is the same whether its values or those it was made of are given.

Source: Cassandra, IV-B; Sun et al. 2023, arXiv:2306.11695 (Wanda).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt16

from hwmodels import Footprint
from hwmodels.numerics.fast_compile import run_on_host
from jaxspec.compress.blending import blend_cuts
from jaxspec.compress.footprint import soft_bitmap, uniform
from jaxspec.compress.rematerialised import made_in_blocks
from jaxspec.compress.schemes.huffman import gaussian_patterns
from jaxspec.compress.schemes.scheme import CompressedKV, CompressedMatrix, OwnKnobs, Scheme
from jaxspec.compress.selection import hard_mask, keep_largest, log_of, num_pruned, soft_mask, wanda_score
from jaxspec.formats.patterns import BitsRead, NumberFormat, from_bits, to_bits
from jaxspec.settings.knobs import StoredDtype
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["ExponentCoding", "NestedKV", "NestedMatrix", "nested_scheme"]


class ExponentCoding(Protocol):
    """How a target stores exponents, and with them what cutting mantissa bits means. Members are frozen and hold no arrays.

    Patterns are those of the target's values; all functions but `number_format` and `target` are of patterns.
    """

    def number_format(self, dtype: Any) -> NumberFormat:
        """Format of the target's values, of a network stored in a dtype."""
        ...

    def target(self, values: Float[Array, "*b column"]) -> Float[Array, "*b column"]:
        """The values that the target computes with."""
        ...

    def cut(
        self, bits: UInt16[Array, "*b column"], cut_bits: Int[Array, ""], number_format: NumberFormat
    ) -> UInt16[Array, "*b column"]:
        """Patterns without their lowest mantissa bits, pruned or not."""
        ...

    def count(
        self,
        bits: UInt16[Array, "row column"],
        kept: Float[Array, "row column"],
        number_format: NumberFormat,
        counted: Float[Array, "row 1"] | float,
    ) -> Any:
        """What `bits_read` needs of some rows: a pytree of sums, which those of several blocks of rows add up to.

        Args:
            kept: weight of each value in the draft: 0 or 1, between for a soft mask; 0 in rows that do not count.
            counted: whether a row counts, 0 or 1.
        """
        ...

    def bits_read(
        self,
        counts: Any,
        shape: tuple[Float[Array, ""] | int, int],
        cut_bits: Float[Array, ""],
        bitmap: Float[Array, ""],
        number_format: NumberFormat,
    ) -> BitsRead:
        """Bits per value.

        Args:
            shape: of all rows that were counted; how many there are may be traced.
            cut_bits: mean number of cut mantissa bits. bitmap: bits of bitmap per value, 0 to 1.
        """
        ...


class _Rows(NamedTuple):
    """The target's patterns with the importance of each value."""

    bits: UInt16[Array, "row column"]
    log_score: Float[Array, "row column"]


@dataclasses.dataclass(frozen=True)
class _Nested:
    """What drafts of weights and of keys and values share.

    Attributes:
        coding: of exponents.
    """

    coding: ExponentCoding

    def _hard(
        self,
        stored: Array,
        scored: Callable[[Array], _Rows],
        number_format: NumberFormat,
        prune: Array,
        cut_bits: Array,
        counted: Float[Array, " row"] | None = None,
    ) -> CompressedMatrix:
        cut = jnp.round(cut_bits).astype(jnp.int32)

        def make(part: Array, *counts: Array) -> tuple[Array, Any]:
            rows = scored(part)
            kept = hard_mask(rows.log_score, prune)
            draft = jnp.where(kept, self.coding.cut(rows.bits, cut, number_format), jnp.uint16(0))
            return from_bits(draft, number_format), self._counts(rows, kept, number_format, *counts)

        values, counts = made_in_blocks(make, stored, *(() if counted is None else (counted,)))
        bitmap = (num_pruned(prune, stored.shape[-1]) > 0).astype(jnp.float32)
        bits = self.coding.bits_read(counts, _shape(stored, counted), cut.astype(jnp.float32), bitmap, number_format)
        return CompressedMatrix(values, bits)

    def _soft(
        self,
        stored: Array,
        scored: Callable[[Array], _Rows],
        number_format: NumberFormat,
        prune: Array,
        cut_bits: Array,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " row"] | None = None,
    ) -> CompressedMatrix:
        mix = blend_cuts(cut_bits, temperature, number_format)

        def make(part: Array, *counts: Array) -> tuple[Array, Any]:
            rows = scored(part)
            # Scores are float32; gradients may be checked in 64 bits.
            kept = soft_mask(rows.log_score.astype(prune.dtype), prune, temperature)
            low, high = (
                from_bits(self.coding.cut(rows.bits, cut, number_format), number_format).astype(kept.dtype)
                for cut in (mix.low, mix.low + 1)
            )
            return kept * (low + mix.weight * (high - low)), self._counts(rows, kept, number_format, *counts)

        values, counts = made_in_blocks(make, stored, *(() if counted is None else (counted,)))
        bitmap = soft_bitmap(prune, temperature).astype(mix.mean.dtype)
        shape = _shape(stored, counted)
        return CompressedMatrix(values, self.coding.bits_read(counts, shape, mix.mean, bitmap, number_format))

    def _counts(
        self, rows: _Rows, kept: Array, number_format: NumberFormat, counted: Float[Array, " row"] | None = None
    ) -> Any:
        weight = kept if jnp.issubdtype(kept.dtype, jnp.floating) else kept.astype(jnp.float32)
        if counted is None:
            return self.coding.count(rows.bits, weight, number_format, 1.0)
        of_row = counted[:, None]
        return self.coding.count(rows.bits, weight * of_row, number_format, of_row)


@dataclasses.dataclass(frozen=True)
class NestedMatrix(_Nested):
    """A `MatrixCodec`."""

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Array:
        """The norms: a value's score is |W| times its channel's."""
        del matrix
        return channel_norm

    def hard(self, matrix: Float[Array, "row column"], prepared: Array, knobs: OwnKnobs) -> CompressedMatrix:
        """Whole cut bits (rounded here), round(p n) values of each row pruned; weights in 16 bits."""
        scored, number_format = self._weights(matrix, prepared)
        return self._hard(matrix, scored, number_format, knobs["weight_prune"], knobs["weight_cut_bits"])

    def soft(
        self,
        matrix: Float[Array, "row column"],
        prepared: Array,
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
    ) -> CompressedMatrix:
        """Masks by a sigmoid of the log-score margin; fractional cuts blend their neighbours."""
        scored, number_format = self._weights(matrix, prepared)
        return self._soft(matrix, scored, number_format, knobs["weight_prune"], knobs["weight_cut_bits"], temperature)

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """The stored matrix itself, or with what its coding loses; once coded, coding it again changes nothing."""
        return self.coding.target(matrix)

    def _weights(
        self, matrix: Float[Array, "row column"], norm: Float[Array, " column"]
    ) -> tuple[Callable[[Array], _Rows], NumberFormat]:
        """Target's patterns and Wanda scores of weights, from rows of the matrix, and the patterns' format."""
        number_format = self.coding.number_format(matrix.dtype)

        def scored(values: Array) -> _Rows:
            values = self.coding.target(values.astype(number_format.value_dtype))
            return _Rows(to_bits(values), log_of(wanda_score(values, norm)))

        return scored, number_format


@dataclasses.dataclass(frozen=True)
class NestedKV(_Nested):
    """A `KVCodec`.

    Attributes:
        stored_dtype: of the cache.
    """

    stored_dtype: StoredDtype = "bfloat16"

    def of_dtype(self, dtype: StoredDtype) -> NestedKV:
        """See `KVCodec`."""
        return dataclasses.replace(self, stored_dtype=dtype)

    def prepare(self, rows: Float[Array, "*b slot column"]) -> UInt16[Array, "*b slot column"]:
        """The target's patterns; a value's score is its magnitude."""
        return to_bits(self.coding.target(rows.astype(self._format.value_dtype)))

    def soft(
        self,
        prepared: UInt16[Array, "part batch slot column"],
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """As for weights."""
        number_format, own = self._format, (knobs["kv_prune"], knobs["kv_cut_bits"])
        scored, of_rows = partial(_by_magnitude, number_format=number_format), _of_rows(counted, prepared)
        made = self._soft(_as_rows(prepared), scored, number_format, *own, temperature, counted=of_rows)
        return CompressedKV(made.values.reshape(prepared.shape), made.bits)

    def hard(
        self,
        prepared: UInt16[Array, "part batch slot column"],
        knobs: OwnKnobs,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """As for weights; rows are float32."""
        number_format, own = self._format, (knobs["kv_prune"], knobs["kv_cut_bits"])
        scored, of_rows = partial(_by_magnitude, number_format=number_format), _of_rows(counted, prepared)
        made = self._hard(_as_rows(prepared), scored, number_format, *own, counted=of_rows)
        return CompressedKV(made.values.reshape(prepared.shape).astype(jnp.float32), made.bits)

    def encode(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """No ranks are prepared, nothing is sorted; rows keep their type."""
        number_format = self._format
        bits = self.prepare(rows)
        keep = rows.shape[-1] - num_pruned(knobs["kv_prune"], rows.shape[-1])
        cut = jnp.round(knobs["kv_cut_bits"]).astype(jnp.int32)
        values = from_bits(self.coding.cut(bits, cut, number_format), number_format)
        return jnp.where(keep_largest(bits & 0x7FFF, keep), values.astype(rows.dtype), 0)

    def of_model(
        self, rows: UInt16[Array, "row column"], prune: Float[Array, " case"], cut_bits: Float[Array, " case"]
    ) -> BitsRead:
        """Bits read of a model's values, pruned by magnitude; of weights too: the model is of a network all of one type."""
        number_format = self._format
        scored = _by_magnitude(to_bits(self.coding.target(from_bits(rows, number_format))), number_format)

        def count(prune: Array, cut_bits: Array) -> BitsRead:
            counts = self._counts(scored, hard_mask(scored.log_score, prune), number_format)
            # A ratio that prunes no value of these rows prunes some of longer ones.
            bitmap = (prune > 0).astype(cut_bits.dtype)
            shape = rows.shape[0], rows.shape[1]
            return self.coding.bits_read(counts, shape, cut_bits, bitmap, number_format)

        return jax.vmap(count)(prune, cut_bits)

    @property
    def _format(self) -> NumberFormat:
        """Format of the target's keys and values."""
        return self.coding.number_format(jnp.dtype(self.stored_dtype))


@functools.cache
def _of_model(cache: NestedKV) -> Callable[..., Any]:
    return run_on_host(cache.of_model)


def nested_scheme(facts: SchemeFacts, coding: ExponentCoding, *, head: Scheme | None = None) -> Scheme:
    """A scheme of such drafts.

    Args:
        coding: of exponents.
        head: the scheme of the LM head, where the draft's is compressed.
    """
    cache = NestedKV(coding)

    def footprint(knobs: Mapping[str, float], dtype: StoredDtype) -> Footprint:
        """Counted on the model's values."""
        prune = np.array([knobs["weight_prune"], knobs["kv_prune"]], np.float32)
        cut_bits = np.array([knobs["weight_cut_bits"], knobs["kv_cut_bits"]], np.float32)
        number_format = coding.number_format(jnp.dtype(dtype))
        bits = _of_model(cache.of_dtype(dtype))(gaussian_patterns(number_format), prune, cut_bits)
        widths = bits.draft[0], bits.target[0], bits.draft[1], bits.target[1]
        if head is None:
            return uniform(*widths)
        of_head = {"weight_prune": knobs["head_prune"], "weight_cut_bits": knobs["head_cut_bits"]}
        head_footprint = head.of_dtype(dtype).expected_footprint({**knobs, **of_head})
        return uniform(*widths, head_footprint.draft_weight_bits["q"], head_footprint.target_weight_bits["q"])

    apart = () if head is None else (("lm_head", head),)
    return Scheme(facts, footprint, NestedMatrix(coding), cache, apart=apart)


def _as_rows(rows: UInt16[Array, "*b column"]) -> UInt16[Array, "row column"]:
    return rows.reshape(-1, rows.shape[-1])


def _of_rows(counted: Float[Array, " batch"] | None, prepared: Array) -> Float[Array, " row"] | None:
    """Whether each row of a cache counts, of whether each sequence does."""
    return None if counted is None else jnp.broadcast_to(counted[:, None], prepared.shape[:-1]).reshape(-1)


def _shape(stored: Array, counted: Float[Array, " row"] | None) -> tuple[Float[Array, ""] | int, int]:
    """Of the rows that count."""
    return stored.shape[0] if counted is None else jnp.sum(counted), stored.shape[1]


def _by_magnitude(bits: UInt16[Array, "row column"], number_format: NumberFormat) -> _Rows:
    """The target's values, whose score is their magnitude."""
    return _Rows(bits, log_of(jnp.abs(from_bits(bits, number_format).astype(jnp.float32))))
