"""The KV cache as an explicit pytree: made, written at per-sequence offsets, never hidden."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.config import DecoderConfig

__all__ = ["CachedKV", "KVCache", "empty_cache", "first_slots", "pad_cache", "take_slots", "write_cache"]


@struct.dataclass
class KVCache:
    """Keys (already rotated) and values of all layers, stacked as the weights are, so that one loop runs over both.

    Attributes:
        key, value: which slots are valid is the caller's mask, not the cache's. Keys have their slots last and values their
            slots before last: the layouts in which both products of attention run without a transposition (on CPUs seven
            times the speed of slots first).
    """

    key: Float[Array, "layer batch kv_head head_dim slot"]
    value: Float[Array, "layer batch kv_head slot head_dim"]

    @property
    def num_layers(self) -> int:
        """Layers."""
        return self.key.shape[0]

    @property
    def num_slots(self) -> int:
        """Tokens per sequence that fit."""
        return self.key.shape[4]


class CachedKV(NamedTuple):
    """Earlier keys and values that a step reads, and which of their slots each of its tokens sees.

    Attributes:
        cache: of as many sequences as the step, or of one that all of them share (a common prefix, stored once).
        mask: one for all layers.
    """

    cache: KVCache
    mask: Bool[Array, "batch token slot"]


def empty_cache(config: DecoderConfig, batch: int, num_slots: int, dtype=jnp.float32) -> KVCache:
    """A cache of zeros with room for `num_slots` tokens per sequence."""
    heads, head_dim = config.cached_shape
    lead = (config.num_layers, batch, heads)
    return KVCache(
        key=jnp.zeros((*lead, head_dim, num_slots), dtype), value=jnp.zeros((*lead, num_slots, head_dim), dtype)
    )


def write_cache(cache: KVCache, update: KVCache, start: Int[Array, " batch"]) -> KVCache:
    """Write `update` (slots of one step) into `cache` from slot `start[b]` on in each sequence b.

    The caller keeps `start + update.num_slots <= cache.num_slots`; XLA would otherwise shift the write silently.
    """
    # An update of fewer layers would be written to the first ones without a word.
    chex.assert_equal_shape([cache.key, update.key], dims=(0, 1, 2, 3))

    def write(buffer, new, axis: int):
        one = lambda buffer, new, offset: jax.lax.dynamic_update_slice_in_dim(buffer, new, offset, axis=axis)
        return jax.vmap(one, in_axes=(1, 1, 0), out_axes=1)(buffer, new.astype(buffer.dtype), start)

    return KVCache(key=write(cache.key, update.key, 3), value=write(cache.value, update.value, 2))


def pad_cache(cache: KVCache, slots: int) -> KVCache:
    """The cache with `slots` more (empty) slots."""
    pad = lambda part, axis: jnp.pad(part, [(0, slots if axis == i else 0) for i in range(part.ndim)])
    return KVCache(key=pad(cache.key, 4), value=pad(cache.value, 3))


def first_slots(cache: KVCache, slots: int) -> KVCache:
    """The cache of its first so many slots."""
    return KVCache(key=cache.key[..., :slots], value=cache.value[..., :slots, :])


def take_slots(cache: KVCache, slots: Int[Array, "batch place"]) -> KVCache:
    """The cache of some of its slots, in their order, for each sequence."""
    return KVCache(
        key=jnp.take_along_axis(cache.key, slots[None, :, None, None, :], axis=4),
        value=jnp.take_along_axis(cache.value, slots[None, :, None, :, None], axis=3),
    )
