"""The KV cache as an explicit pytree: made, written at per-sequence offsets, never hidden."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.models.config import DecoderConfig


@struct.dataclass
class KVCache:
    """Keys (already rotated) and values of all layers.

    Attributes:
        key, value: "layer batch slot kv_head head_dim". Which slots are valid is the caller's mask, not the cache's.
    """

    key: Float[Array, "layer batch slot kv_head head_dim"]
    value: Float[Array, "layer batch slot kv_head head_dim"]

    @property
    def num_slots(self) -> int:
        return self.key.shape[2]


def empty_cache(config: DecoderConfig, batch: int, num_slots: int, dtype=jnp.float32) -> KVCache:
    """A cache of zeros with room for `num_slots` tokens per sequence."""
    shape = (config.num_layers, batch, num_slots, config.num_kv_heads, config.head_dim)
    return KVCache(key=jnp.zeros(shape, dtype), value=jnp.zeros(shape, dtype))


def write_cache(cache: KVCache, update: KVCache, start: Int[Array, " batch"]) -> KVCache:
    """Write `update` (slots of one step) into `cache` from slot `start[b]` on in each sequence b.

    The caller keeps `start + update.num_slots <= cache.num_slots`; XLA would otherwise shift the write silently.
    """

    def write_one(buffer, new, offset):  # "layer slot kv_head head_dim"
        return jax.lax.dynamic_update_slice(buffer, new.astype(buffer.dtype), (0, offset, 0, 0))

    write = jax.vmap(write_one, in_axes=(1, 1, 0), out_axes=1)
    return KVCache(key=write(cache.key, update.key, start), value=write(cache.value, update.value, start))
