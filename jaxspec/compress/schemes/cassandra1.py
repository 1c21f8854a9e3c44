"""Cassandra-1: a draft of the largest values with their high mantissa bits and unary-coded exponents; lossless.

Pruning takes the lowest scores of each row: Wanda's for weights, the magnitude for keys and values of a token.

Source: Cassandra, IV-B; Sun et al. 2023, arXiv:2306.11695 (Wanda).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, UInt16

from hwmodels import Footprint
from jaxspec.compress.cut import blend, soft_truncate
from jaxspec.compress.footprint import (
    PrunedExponents,
    of_kv,
    of_weights,
    soft_bitmap,
    speculation_bits,
    uniform,
    verification_bits,
)
from jaxspec.compress.schemes.described import Described
from jaxspec.compress.schemes.gaussian import gaussian_patterns, gaussian_ranks
from jaxspec.compress.schemes.interface import CompressedKV, CompressedLayer, Layer, LayerKnobs
from jaxspec.compress.selection import (
    RankedScores,
    hard_mask,
    keep_largest,
    num_pruned,
    rank_scores,
    soft_mask,
    wanda_score,
)
from jaxspec.formats.patterns import BFLOAT16, from_bits, to_bits
from jaxspec.formats.split import draft_values, split_tensor
from jaxspec.formats.truncation import high_part
from jaxspec.models.config import INPUT_OF, MATRIX_KINDS
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CASSANDRA1", "CASSANDRA1_CODED", "Cassandra1", "Ranked"]


@struct.dataclass
class Ranked:
    """Stored patterns and their ranked scores."""

    bits: UInt16[Array, "*b row column"]
    scores: RankedScores


@dataclasses.dataclass(frozen=True)
class Cassandra1(Described):
    """A scheme (see `Scheme`).

    Attributes:
        pruned_exponents: how the exponents of pruned values are stored: "raw" as in the paper (V-A), or "coded".
    """

    pruned_exponents: PrunedExponents = "raw"

    def prepare(self, layer: Layer, channel_norms: Mapping[str, Float[Array, " column"]]) -> dict[str, Ranked]:
        """Rank every matrix by |W| times the norm of the input channel, within each output row."""
        return {
            kind: _ranked(layer[kind], wanda_score(layer[kind], channel_norms[INPUT_OF[kind]])) for kind in MATRIX_KINDS
        }

    def hard(self, layer: Layer, prepared: dict[str, Ranked], knobs: LayerKnobs) -> CompressedLayer:
        """Whole cut bits (rounded here), round(p n) values of each row pruned; weights in bfloat16."""
        del layer
        matrices, draft, target = {}, {}, {}
        for i, kind in enumerate(MATRIX_KINDS):
            prune = knobs["weight_prune"][i]
            cut = jnp.round(knobs["weight_cut_bits"][i]).astype(jnp.int32)
            matrix = prepared[kind]
            kept = hard_mask(matrix.scores, prune)
            matrices[kind] = draft_values(split_tensor(from_bits(matrix.bits, BFLOAT16), kept, cut))
            draft[kind], target[kind] = self._hard_bits(matrix.bits, kept, prune, cut)
        return CompressedLayer(matrices, of_weights(draft, target))

    def soft(
        self, layer: Layer, prepared: dict[str, Ranked], knobs: LayerKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedLayer:
        """Masks by a sigmoid of the log-score margin; fractional cuts blend their neighbours."""
        del layer
        matrices, draft, target = {}, {}, {}
        for i, kind in enumerate(MATRIX_KINDS):
            matrix, prune = prepared[kind], knobs["weight_prune"][i]
            mix = blend(knobs["weight_cut_bits"][i], temperature)
            kept = soft_mask(matrix.scores, prune, temperature)
            matrices[kind] = kept * soft_truncate(matrix.bits, mix, kept.dtype)
            draft[kind], target[kind] = self._bits(matrix.bits, kept, mix.cut_bits, soft_bitmap(prune, temperature))
        return CompressedLayer(matrices, of_weights(draft, target))

    def target(self, layer: Layer) -> Layer:
        """The stored layer itself."""
        return layer

    def prepare_kv(self, rows: Float[Array, "*b slot column"]) -> Ranked:
        """Rank keys and values by magnitude within each token."""
        return _ranked(rows, jnp.abs(rows.astype(jnp.float32)))

    def soft_kv(self, prepared: Ranked, knobs: LayerKnobs, temperature: Float[Array, ""] | float) -> CompressedKV:
        """As for weights."""
        prune, mix = knobs["kv_prune"], blend(knobs["kv_cut_bits"], temperature)
        kept = soft_mask(prepared.scores, _every_row(prepared, prune), temperature)
        rows = kept * soft_truncate(prepared.bits, mix, kept.dtype)
        return CompressedKV(
            rows, of_kv(*self._bits(prepared.bits, kept, mix.cut_bits, soft_bitmap(prune, temperature)))
        )

    def hard_kv(self, prepared: Ranked, knobs: LayerKnobs) -> CompressedKV:
        """As for weights; rows are float32."""
        prune, cut = knobs["kv_prune"], jnp.round(knobs["kv_cut_bits"]).astype(jnp.int32)
        kept = hard_mask(prepared.scores, _every_row(prepared, prune))
        rows = jnp.where(kept, from_bits(high_part(prepared.bits, cut), BFLOAT16).astype(jnp.float32), 0.0)
        return CompressedKV(rows, of_kv(*self._hard_bits(prepared.bits, kept, prune, cut)))

    def encode_kv(self, rows: Float[Array, "*b column"], knobs: LayerKnobs) -> Float[Array, "*b column"]:
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
        draft, target = _model_bits(self, gaussian_patterns(), prune, cut_bits)
        return uniform(draft[0], target[0], draft[1], target[1])

    def _bits(self, bits: Array, kept: Array, cut_bits: Array, bitmap: Array) -> tuple[Array, Array]:
        """Bits per value of the draft and of the target."""
        flat, kept = bits.reshape(-1), kept.reshape(-1)
        draft = speculation_bits(flat, kept, cut_bits, bitmap)
        return draft, draft + verification_bits(flat, kept, cut_bits, self.pruned_exponents)

    def _hard_bits(self, bits: Array, kept: Array, prune: Array, cut: Array) -> tuple[Array, Array]:
        bitmap = _bitmap(num_pruned(prune, kept.shape[-1]) > 0)
        return self._bits(bits, kept.astype(jnp.float32), cut.astype(jnp.float32), bitmap)


@partial(jax.jit, static_argnums=0)
def _model_bits(
    scheme: Cassandra1,
    bits: UInt16[Array, "row column"],
    prune: Float[Array, " case"],
    cut_bits: Float[Array, " case"],
) -> tuple[Float[Array, " case"], Float[Array, " case"]]:
    """Bits per value of draft and target: one program, where operation by operation would compile seventy."""
    scores = gaussian_ranks(bits)

    def count(prune: Array, cut_bits: Array) -> tuple[Array, Array]:
        kept = hard_mask(scores, prune)
        return scheme._bits(bits, kept.astype(jnp.float32), cut_bits, _bitmap(prune > 0))

    return jax.vmap(count)(prune, cut_bits)


def _ranked(values: Array, score: Float[Array, "*b row column"]) -> Ranked:
    return Ranked(bits=to_bits(values.astype(jnp.bfloat16)), scores=rank_scores(score))


def _every_row(prepared: Ranked, prune: Array) -> Array:
    """A layer's ratio for each (part, sequence); the slots are the rows."""
    return jnp.broadcast_to(prune, prepared.bits.shape[:-2])


def _bitmap(present: Array | bool) -> Array:
    return jnp.asarray(present).astype(jnp.float32)


#: Exponents of pruned values as they are.
CASSANDRA1 = Cassandra1(SCHEME_FACTS["cassandra1"])
#: Exponents of pruned values coded too.
CASSANDRA1_CODED = Cassandra1(SCHEME_FACTS["cassandra1-coded"], pruned_exponents="coded")
