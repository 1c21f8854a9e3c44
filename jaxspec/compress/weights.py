"""Draft weights from target weights: ranked once, then hard or soft for any knobs."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, UInt16

from jaxspec.compress.cut import blend, soft_truncate
from jaxspec.compress.footprint import BitsPerValue, PrunedExponents, bits_per_value, soft_bitmap
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.selection import RankedScores, hard_mask, num_pruned, rank_scores, soft_mask
from jaxspec.formats.patterns import to_bits
from jaxspec.formats.split import draft_values, split_tensor
from jaxspec.models.config import MATRIX_KINDS
from jaxspec.models.decoder import Params

#: Which recorded input feeds each matrix (see `forward(keep_activations=True)`).
INPUT_OF = {"q": "qkv", "k": "qkv", "v": "qkv", "o": "o", "gate": "gate_up", "up": "gate_up", "down": "down"}


@struct.dataclass
class RankedMatrix:
    """One matrix kind of all layers: its stored patterns and its ranked Wanda scores."""

    bits: UInt16[Array, "layer row column"]
    scores: RankedScores


class DraftWeights(NamedTuple):
    """Parameters of the draft, and what reading each matrix costs.

    Attributes:
        params: the target's parameters with the matrices of the layers replaced.
        bits: "layer kind" bits per stored weight.
    """

    params: Params
    bits: BitsPerValue


def activation_norms(activations: dict[str, Array]) -> dict[str, Float[Array, "layer column"]]:
    """L2 norm of each input channel over all calibration tokens, per input group."""
    return {name: jnp.sqrt(jnp.sum(jnp.square(x), axis=(1, 2))) for name, x in activations.items()}


def rank_weights(params: Params, norms: dict[str, Float[Array, "layer column"]]) -> dict[str, RankedMatrix]:
    """Wanda scores |W| times the norm of the input channel, ranked within each output row.

    Source: Sun et al. 2023, arXiv:2306.11695; Cassandra, IV-B.
    """

    def one(kind: str) -> RankedMatrix:
        weight = params["layers"][kind]
        score = jnp.abs(weight.astype(jnp.float32)) * norms[INPUT_OF[kind]][:, None, :]
        return RankedMatrix(bits=to_bits(weight.astype(jnp.bfloat16)), scores=rank_scores(score))

    return {kind: one(kind) for kind in MATRIX_KINDS}


def _assemble(params: Params, layers: dict[str, Array], bits: list[BitsPerValue]) -> DraftWeights:
    stacked = jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *bits)
    return DraftWeights(params=params | {"layers": params["layers"] | layers}, bits=stacked)


def _flat(x: Array) -> Array:
    return x.reshape(x.shape[0], -1)


def hard_draft(
    params: Params, ranked: dict[str, RankedMatrix], knobs: Knobs, pruned_exponents: PrunedExponents = "raw"
) -> DraftWeights:
    """The bit-exact draft: whole cut bits (rounded here), round(p n) values of each row pruned; weights in bfloat16."""
    layers, bits = {}, []
    for i, kind in enumerate(MATRIX_KINDS):
        matrix, prune = ranked[kind], knobs.weight_prune[:, i]
        cut = jnp.round(knobs.weight_cut_bits[:, i]).astype(jnp.int32)
        kept = hard_mask(matrix.scores, prune)
        stored = jax.lax.bitcast_convert_type(matrix.bits, jnp.bfloat16)
        layers[kind] = draft_values(split_tensor(stored, kept, cut[:, None, None]))
        bitmap = (num_pruned(prune, kept.shape[-1]) > 0).astype(jnp.float32)
        bits.append(
            bits_per_value(
                _flat(matrix.bits), _flat(kept).astype(jnp.float32), cut.astype(jnp.float32), bitmap, pruned_exponents
            )
        )
    return _assemble(params, layers, bits)


def soft_draft(
    params: Params,
    ranked: dict[str, RankedMatrix],
    knobs: Knobs,
    temperature: Float[Array, ""] | float,
    pruned_exponents: PrunedExponents = "raw",
) -> DraftWeights:
    """The differentiable draft; tends to `hard_draft` as the temperature (> 0) falls, away from half-way knobs."""
    layers, bits = {}, []
    for i, kind in enumerate(MATRIX_KINDS):
        matrix, prune = ranked[kind], knobs.weight_prune[:, i]
        mix = blend(knobs.weight_cut_bits[:, i], temperature)
        kept = soft_mask(matrix.scores, prune, temperature)
        per_matrix = jax.tree.map(lambda x: x[:, None, None], mix)
        layers[kind] = kept * soft_truncate(matrix.bits, per_matrix, kept.dtype)
        bits.append(
            bits_per_value(
                _flat(matrix.bits), _flat(kept), mix.cut_bits, soft_bitmap(prune, temperature), pruned_exponents
            )
        )
    return _assemble(params, layers, bits)
