"""The draft's view of the target's KV cache, all layers: a scheme's functions of one layer's rows, mapped over the layers.

Keys and values of a token are each one row of (KV head, head dimension). The target stores its KV in bfloat16; what the draft
writes for tokens not yet verified stays at compute precision and is overwritten by verification, so it is never compressed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels import Footprint
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import CompressedKV, Scheme
from jaxspec.models.kv_cache import KVCache


def round_kv(x: Array) -> Array:
    """The target's KV codec: what it writes is rounded to bfloat16, in the step that writes it and in all later ones."""
    return x.astype(jnp.bfloat16).astype(x.dtype)


@struct.dataclass
class PreparedKV:
    """Keys and values of known tokens, prepared once for any knobs.

    Attributes:
        rows: the scheme's own; leaves are "layer part batch slot ...".
        position: as in `KVCache`.
    """

    rows: Any
    num_kv_heads: int = struct.field(pytree_node=False)
    position: Int[Array, "layer batch slot"] | None = None

    def window(self, index: Array) -> PreparedKV:
        """Some of the sequences."""
        return dataclasses.replace(
            self,
            rows=jax.tree.map(lambda x: jnp.take(x, index, axis=2), self.rows),
            position=jax.tree.map(lambda x: jnp.take(x, index, axis=1), self.position),
        )


class DraftCache(NamedTuple):
    """KV as a draft reads it, and bits per stored element of each layer."""

    cache: KVCache
    footprint: Footprint


def prepare_kv(scheme: Scheme, cache: KVCache) -> PreparedKV:
    """Prepare the target's KV of calibration text (values already representable in bfloat16)."""
    rows = jax.vmap(scheme.prepare_kv)(_token_rows(cache))
    return PreparedKV(rows=rows, num_kv_heads=cache.key.shape[2], position=cache.position)


def _token_rows(cache: KVCache) -> Float[Array, "layer part batch slot column"]:
    """Keys (part 0) and values (part 1), one row per token."""
    key, value = cache.key.transpose(0, 1, 4, 2, 3), cache.value.transpose(0, 1, 3, 2, 4)
    both = jnp.stack([key, value], axis=1)
    return both.reshape(*both.shape[:4], -1)


def _as_cache(
    rows: Float[Array, "layer part batch slot column"],
    num_kv_heads: int,
    position: Int[Array, "layer batch slot"] | None,
) -> KVCache:
    """Inverse of `_token_rows`."""
    both = rows.reshape(*rows.shape[:4], num_kv_heads, -1)
    key, value = both[:, 0].transpose(0, 1, 3, 4, 2), both[:, 1].transpose(0, 1, 3, 2, 4)
    return KVCache(key=key, value=value, position=position)


def _assemble(compressed: CompressedKV, kv: PreparedKV) -> DraftCache:
    return DraftCache(_as_cache(compressed.rows, kv.num_kv_heads, kv.position), compressed.footprint)


def soft_kv(kv: PreparedKV, knobs: Knobs, temperature: Float[Array, ""] | float) -> DraftCache:
    """The differentiable compressed cache."""
    one = lambda rows, values: knobs.scheme.soft_kv(rows, values, temperature)
    return _assemble(jax.vmap(one)(kv.rows, knobs.values), kv)


def hard_kv(kv: PreparedKV, knobs: Knobs) -> DraftCache:
    """The bit-exact compressed cache."""
    return _assemble(jax.vmap(knobs.scheme.hard_kv)(kv.rows, knobs.values), kv)


def compress_cache(cache: KVCache, knobs: Knobs) -> KVCache:
    """`hard_kv` of KV seen for the first time, inside a decoding loop."""
    rows = jax.vmap(knobs.scheme.encode_kv)(_token_rows(cache), knobs.values)
    return _as_cache(rows, cache.key.shape[2], cache.position)
