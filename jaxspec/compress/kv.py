"""The draft's view of the target's KV cache: per-token magnitude pruning and truncation, hard or soft.

Keys and values of a token are each one row of (KV head, head dimension). The target stores its KV in bfloat16; what the draft
writes for tokens not yet verified stays at compute precision and is overwritten by verification, so it is never compressed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, UInt16

from jaxspec.compress.cut import blend, soft_truncate
from jaxspec.compress.footprint import BitsPerValue, PrunedExponents, bits_per_value, soft_bitmap
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.selection import RankedScores, hard_mask, keep_largest, num_pruned, rank_scores, soft_mask
from jaxspec.formats.patterns import BFLOAT16, from_bits, to_bits
from jaxspec.formats.truncation import high_part
from jaxspec.models.kv_cache import KVCache


def round_kv(x: Array) -> Array:
    """The target's KV codec: what it writes is rounded to bfloat16, in the step that writes it and in all later ones."""
    return x.astype(jnp.bfloat16).astype(x.dtype)


@struct.dataclass
class RankedKV:
    """Keys and values of known tokens, ranked within each token: prepared once for any knobs."""

    bits: UInt16[Array, "layer part batch slot column"]
    scores: RankedScores
    num_kv_heads: int = struct.field(pytree_node=False)


def rank_kv(cache: KVCache) -> RankedKV:
    """Prepare the target's KV of calibration text (values already representable in bfloat16)."""
    rows = _token_rows(cache)
    score = jnp.abs(rows.astype(jnp.float32))
    return RankedKV(
        bits=to_bits(rows.astype(jnp.bfloat16)), scores=rank_scores(score), num_kv_heads=cache.key[0].shape[1]
    )


def _token_rows(cache: KVCache) -> Float[Array, "layer part batch slot column"]:
    """Keys (part 0) and values (part 1), one row per token."""
    key, value = jnp.stack(cache.key).transpose(0, 1, 4, 2, 3), jnp.stack(cache.value).transpose(0, 1, 3, 2, 4)
    both = jnp.stack([key, value], axis=1)
    return both.reshape(*both.shape[:4], -1)


def _as_cache(rows: Float[Array, "layer part batch slot column"], num_kv_heads: int) -> KVCache:
    """Inverse of `_token_rows`."""
    both = rows.reshape(*rows.shape[:4], num_kv_heads, -1)
    key, value = both[:, 0].transpose(0, 1, 3, 4, 2), both[:, 1].transpose(0, 1, 3, 2, 4)
    return KVCache(key=tuple(key), value=tuple(value))


def _per_layer(x: Array) -> Array:
    return x[:, None, None, None, None]


def _rows(scores: RankedScores, prune: Array) -> Array:
    """A layer's ratio for each (part, sequence); the slots are the rows."""
    return jnp.broadcast_to(prune[:, None, None], scores.rank.shape[:3])


def soft_kv(
    kv: RankedKV, knobs: Knobs, temperature: Float[Array, ""] | float, pruned_exponents: PrunedExponents = "raw"
) -> tuple[KVCache, BitsPerValue]:
    """The differentiable compressed cache, and bits per stored element of each layer."""
    mix = blend(knobs.kv_cut_bits, temperature)
    kept = soft_mask(kv.scores, _rows(kv.scores, knobs.kv_prune), temperature)
    values = kept * soft_truncate(kv.bits, jax.tree.map(_per_layer, mix), kept.dtype)
    lead = kv.bits.shape[0]
    bits = bits_per_value(
        kv.bits.reshape(lead, -1),
        kept.reshape(lead, -1),
        mix.cut_bits,
        soft_bitmap(knobs.kv_prune, temperature),
        pruned_exponents,
    )
    return _as_cache(values, kv.num_kv_heads), bits


def hard_kv(kv: RankedKV, knobs: Knobs, pruned_exponents: PrunedExponents = "raw") -> tuple[KVCache, BitsPerValue]:
    """The bit-exact compressed cache, and bits per stored element of each layer."""
    cut = jnp.round(knobs.kv_cut_bits).astype(jnp.int32)
    kept = hard_mask(kv.scores, _rows(kv.scores, knobs.kv_prune))
    values = jnp.where(kept, from_bits(high_part(kv.bits, _per_layer(cut)), BFLOAT16).astype(jnp.float32), 0.0)
    lead = kv.bits.shape[0]
    bitmap = (num_pruned(knobs.kv_prune, kept.shape[-1]) > 0).astype(jnp.float32)
    bits = bits_per_value(
        kv.bits.reshape(lead, -1),
        kept.reshape(lead, -1).astype(jnp.float32),
        cut.astype(jnp.float32),
        bitmap,
        pruned_exponents,
    )
    return _as_cache(values, kv.num_kv_heads), bits


def compress_cache(cache: KVCache, knobs: Knobs) -> KVCache:
    """`hard_kv` of KV seen for the first time, inside a decoding loop: no ranks are prepared, nothing is sorted."""

    rows = _token_rows(cache)
    bits = to_bits(rows.astype(jnp.bfloat16))
    keep = rows.shape[-1] - num_pruned(knobs.kv_prune, rows.shape[-1])
    kept = keep_largest(bits & 0x7FFF, keep[:, None, None, None])
    cut = jnp.round(knobs.kv_cut_bits).astype(jnp.int32)
    values = jnp.where(kept, from_bits(high_part(bits, _per_layer(cut)), BFLOAT16).astype(rows.dtype), 0)
    return _as_cache(values, cache.key[0].shape[1])
