"""The KV cache as an explicit pytree: made, written at per-sequence offsets, never hidden."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.models.config import DecoderConfig


@struct.dataclass
class KVCache:
    """Keys (already rotated) and values, one array per layer: a stack would be copied layer by layer in every step.

    Attributes:
        key, value: which slots are valid is the caller's mask, not the cache's. Keys have their slots last and values their
            slots before last: the layouts in which both products of attention run without a transposition (on CPUs seven
            times the speed of slots first).
    """

    key: tuple[Float[Array, "batch kv_head head_dim slot"], ...]
    value: tuple[Float[Array, "batch kv_head slot head_dim"], ...]

    @property
    def num_layers(self) -> int:
        """Layers."""
        return len(self.key)

    @property
    def num_slots(self) -> int:
        """Tokens per sequence that fit."""
        return self.value[0].shape[2]


def empty_cache(config: DecoderConfig, batch: int, num_slots: int, dtype=jnp.float32) -> KVCache:
    """A cache of zeros with room for `num_slots` tokens per sequence."""
    lead = (batch, config.num_kv_heads)
    layers = range(config.num_layers)
    return KVCache(
        key=tuple(jnp.zeros((*lead, config.head_dim, num_slots), dtype) for _ in layers),
        value=tuple(jnp.zeros((*lead, num_slots, config.head_dim), dtype) for _ in layers),
    )


def write_cache(cache: KVCache, update: KVCache, start: Int[Array, " batch"]) -> KVCache:
    """Write `update` (slots of one step) into `cache` from slot `start[b]` on in each sequence b.

    The caller keeps `start + update.num_slots <= cache.num_slots`; XLA would otherwise shift the write silently.
    """
    # Layers beyond those of the shorter one would be dropped.
    chex.assert_trees_all_equal_structs(cache, update)

    def write(axis: int):
        def one(buffer, new, offset):
            return jax.lax.dynamic_update_slice_in_dim(buffer, new.astype(buffer.dtype), offset, axis=axis)

        return lambda buffer, new: jax.vmap(one)(buffer, new, start)

    return KVCache(
        key=tuple(map(write(2), cache.key, update.key)),
        value=tuple(map(write(1), cache.value, update.value)),
    )


def pad_cache(cache: KVCache, slots: int) -> KVCache:
    """The cache with `slots` more (empty) slots."""
    return KVCache(
        key=tuple(jnp.pad(key, ((0, 0), (0, 0), (0, 0), (0, slots))) for key in cache.key),
        value=tuple(jnp.pad(value, ((0, 0), (0, 0), (0, slots), (0, 0))) for value in cache.value),
    )


def take_slots(cache: KVCache, slots: Int[Array, "batch place"]) -> KVCache:
    """The cache of some of its slots, in their order, for each sequence."""
    return KVCache(
        key=tuple(jnp.take_along_axis(key, slots[:, None, None, :], axis=3) for key in cache.key),
        value=tuple(jnp.take_along_axis(value, slots[:, None, :, None], axis=2) for value in cache.value),
    )
