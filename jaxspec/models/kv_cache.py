"""The KV cache as an explicit pytree: made, written at per-sequence offsets, never hidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

    Of latent attention, the keys are the rotated part that all heads share, the values the latents: one head of each.

    Attributes:
        key, value: which slots are valid is the caller's mask, not the cache's. Keys have their slots last and values their
            slots before last: the layouts in which both products of attention run without a transposition (on CPUs seven
            times the speed of slots first).
        position: of each slot's token, in networks whose windows ask for it; None in others.
    """

    key: Float[Array, "layer batch kv_head key_dim slot"]
    value: Float[Array, "layer batch kv_head slot value_dim"]
    position: Int[Array, "layer batch slot"] | None = None

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
    cached = config.cached_shape
    lead = (config.num_layers, batch, cached.heads)
    return KVCache(
        key=jnp.zeros((*lead, cached.key_dim, num_slots), dtype),
        value=jnp.zeros((*lead, num_slots, cached.value_dim), dtype),
        position=jnp.zeros((*lead[:2], num_slots), jnp.int32) if config.windowed else None,
    )


def _each(cache: KVCache, function: Callable[..., Array], *others: KVCache) -> KVCache:
    """`function(part, slot axis)` of keys, values and positions, the last where there are any; with those of other caches."""
    of = lambda name, axis: function(*(getattr(one, name) for one in (cache, *others)), axis=axis)
    return KVCache(of("key", 4), of("value", 3), None if cache.position is None else of("position", 2))


def write_cache(cache: KVCache, update: KVCache, start: Int[Array, " batch"]) -> KVCache:
    """Write `update` (slots of one step) into `cache` from slot `start[b]` on in each sequence b.

    The caller keeps `start + update.num_slots <= cache.num_slots`; XLA would otherwise shift the write silently.
    """
    start = jnp.asarray(start)
    # An update of fewer layers would be written to the first ones without a word.
    chex.assert_equal_shape([cache.key, update.key], dims=(0, 1, 2, 3))

    def write(buffer, new, axis: int):
        new = new.astype(buffer.dtype)
        if start.shape[0] == 1:
            return jax.lax.dynamic_update_slice_in_dim(buffer, new, start[0], axis=axis)
        return jax.lax.platform_dependent(
            buffer, new, start, cpu=partial(_written_in_turn, axis=axis), default=partial(_written_at_once, axis=axis)
        )

    return _each(cache, write, update)


def _written_at_once(buffer: Array, new: Array, start: Int[Array, " batch"], *, axis: int) -> Array:
    """All sequences in one scatter."""
    one = lambda buffer, new, offset: jax.lax.dynamic_update_slice_in_dim(buffer, new, offset, axis=axis - 1)
    return jax.vmap(one, in_axes=(1, 1, 0), out_axes=1)(buffer, new, start)


def _written_in_turn(buffer: Array, new: Array, start: Int[Array, " batch"], *, axis: int) -> Array:
    """One sequence after the other: on CPUs a scatter takes a third of a step's time at batch 16, this next to none."""

    def put(sequence: Array, buffer: Array) -> Array:
        row = jax.lax.dynamic_slice_in_dim(new, sequence, 1, axis=1)
        place = [jnp.zeros_like(sequence)] * buffer.ndim
        place[1], place[axis] = sequence, start[sequence].astype(sequence.dtype)
        return jax.lax.dynamic_update_slice(buffer, row, place)

    return jax.lax.fori_loop(0, start.shape[0], put, buffer)


def pad_cache(cache: KVCache, slots: int) -> KVCache:
    """The cache with `slots` more (empty) slots."""
    pad = lambda part, axis: jnp.pad(part, [(0, slots if axis == i else 0) for i in range(part.ndim)])
    return _each(cache, pad)


def first_slots(cache: KVCache, slots: int) -> KVCache:
    """The cache of its first so many slots."""
    return _each(cache, lambda part, axis: jax.lax.slice_in_dim(part, 0, min(slots, part.shape[axis]), axis=axis))


def take_slots(cache: KVCache, slots: Int[Array, "batch place"]) -> KVCache:
    """The cache of some of its slots, in their order, for each sequence."""

    def take(part, axis: int):
        index = slots.reshape(1, slots.shape[0], *[slots.shape[1] if i == axis else 1 for i in range(2, part.ndim)])
        return jnp.take_along_axis(part, index, axis=axis)

    return _each(cache, take)
