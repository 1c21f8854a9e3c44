"""The KV cache as an explicit pytree: made, written at per-sequence offsets, never hidden."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.apart import Parts, is_apart, layers_apart
from jaxspec.models.config import DecoderConfig
from jaxspec.models.mixed_cache import MixedLayers

__all__ = [
    "CachedKV",
    "KVCache",
    "cache_like",
    "empty_cache",
    "first_slots",
    "in_parts",
    "take_sequences",
    "take_slots",
    "write_cache",
]


@struct.dataclass
class KVCache:
    """Keys (already rotated) and values of all layers, stacked as the weights are, so that one loop runs over both; or, where
    the weights are kept apart, in parts, one of each layer.

    Of latent attention, the keys are the rotated part that all heads share, the values the latents: one head of each. Of linear
    attention, see `jaxspec.models.mixed_cache`.

    Attributes:
        key, value: arrays, or `Parts` in their place. Which slots are valid is the caller's mask, not the cache's. Keys have
            their slots last and values their slots before last: the layouts in which both products of attention run without
            a transposition (on CPUs seven times the speed of slots first).
        position: of each slot's token, in networks whose windows or convolutions ask for it; None in others.
        mixed: static; what its layers hold, where some have linear attention; None: all hold keys and values.
    """

    key: Float[Array, "layer batch kv_head key_dim slot"]
    value: Float[Array, "layer batch kv_head slot value_dim"]
    position: Int[Array, "layer batch slot"] | None = None
    mixed: MixedLayers | None = struct.field(pytree_node=False, default=None)

    @property
    def num_layers(self) -> int:
        """Layers."""
        return self.key.shape[0]

    @property
    def num_slots(self) -> int:
        """Tokens per sequence that fit."""
        return jax.tree.leaves(self.key)[0].shape[-1]


class CachedKV(NamedTuple):
    """Earlier keys and values that a step reads, and which of their slots each of its tokens sees.

    Attributes:
        cache: of as many sequences as the step, or of one that all of them share (a common prefix, stored once).
        mask: one for all layers.
    """

    cache: KVCache
    mask: Bool[Array, "batch token slot"]


class _Axes(NamedTuple):
    """Of an array with or without a layer axis: counted from behind."""

    batch: int
    slot: int


#: No network puts this out; compilers do not know.
_NEVER = jnp.finfo(jnp.float32).max

#: Of the arrays of a cache.
_AXES = {"key": _Axes(-4, -1), "value": _Axes(-4, -2), "position": _Axes(-2, -1)}


def empty_cache(
    config: DecoderConfig, batch: int, num_slots: int, dtype=jnp.float32, *, params: dict[str, Any] | None = None
) -> KVCache:
    """A cache of zeros with room for `num_slots` tokens per sequence.

    Args:
        params: of the network that reads it in every step: the cache is in parts if its layers are apart. None: stacked.
    """
    cached = config.cached_shape
    lead = (config.num_layers, batch, cached.heads)
    stacked = KVCache(
        key=jnp.zeros((*lead, cached.key_dim, num_slots), dtype),
        value=jnp.zeros((*lead, num_slots, cached.value_dim), dtype),
        position=jnp.zeros((*lead[:2], num_slots), jnp.int32) if config.needs_positions else None,
        mixed=config.mixed_layers,
    )
    return stacked if params is None else cache_like(params, stacked)


def cache_like(params: dict[str, Any], cache: KVCache) -> KVCache:
    """A cache in the form in which steps of a network read it fastest: in parts if its layers are apart.

    XLA on CPUs copies each layer out of a stack before it reads it, and the whole stack where a loop writes it.
    """
    return in_parts(cache) if layers_apart(params) else cache


def in_parts(cache: KVCache) -> KVCache:
    """A cache of one array for each layer."""
    return jax.tree.map(lambda node: node if is_apart(node) else Parts(tuple(node)), cache, is_leaf=is_apart)


def _each(cache: KVCache, function: Callable[[Array, _Axes], Any]) -> KVCache:
    """`function(array, its axes)` of keys, values and positions, the last where there are any."""
    of = lambda name: jax.tree.map(lambda array: function(array, _AXES[name]), getattr(cache, name))
    return dataclasses.replace(cache, **{name: of(name) for name in _AXES})


def write_cache(
    cache: KVCache,
    update: KVCache,
    start: Int[Array, " batch"],
    *,
    after: Float[Array, "batch token hidden"] | None = None,
) -> KVCache:
    """Write `update` (slots of one step) into `cache` from slot `start[b]` on in each sequence b.

    The caller keeps `start + update.num_slots <= cache.num_slots`; XLA would otherwise shift the write silently.

    Args:
        after: what the step that read the cache put out. XLA on CPUs copies what it writes while it is read: the write waits.
    """
    start = jnp.asarray(start)
    if after is not None:
        start = start + (after[:, 0, 0] == _NEVER).astype(start.dtype)
    update = in_parts(update) if is_apart(cache.key) else update
    axes = jax.tree.leaves(_each(cache, lambda array, axes: axes), is_leaf=lambda node: isinstance(node, _Axes))
    buffers, form = jax.tree.flatten(cache)
    new = [array.astype(buffer.dtype) for array, buffer in zip(jax.tree.leaves(update), buffers, strict=True)]
    for buffer, array, of in zip(buffers, new, axes, strict=True):
        # An update of fewer layers would be written to the first ones without a word.
        chex.assert_equal_shape([buffer, array], dims=[axis for axis in range(-buffer.ndim, 0) if axis != of.slot])
    if start.shape[0] == 1:
        written = [
            jax.lax.dynamic_update_slice_in_dim(buffer, array, start[0], axis=buffer.ndim + of.slot)
            for buffer, array, of in zip(buffers, new, axes, strict=True)
        ]
    else:
        written = jax.lax.platform_dependent(
            buffers, new, start, cpu=partial(_written_in_turn, axes=axes), default=partial(_written_at_once, axes=axes)
        )
    return jax.tree.unflatten(form, written)


def _written_at_once(buffers: list[Array], new: list[Array], start: Int[Array, " batch"], *, axes: list[_Axes]):
    """All sequences of an array in one scatter."""

    def write(buffer: Array, array: Array, of: _Axes) -> Array:
        batch, slot = buffer.ndim + of.batch, buffer.ndim + of.slot
        one = lambda buffer, array, first: jax.lax.dynamic_update_slice_in_dim(buffer, array, first, axis=slot - 1)
        return jax.vmap(one, in_axes=(batch, batch, 0), out_axes=batch)(buffer, array, start)

    return list(map(write, buffers, new, axes))


def _written_in_turn(buffers: list[Array], new: list[Array], start: Int[Array, " batch"], *, axes: list[_Axes]):
    """One sequence after the other: on CPUs a scatter takes a third of a step's time at batch 16, this next to none."""

    def put(sequence: Array, buffers: list[Array]) -> list[Array]:
        def write(buffer: Array, array: Array, of: _Axes) -> Array:
            row = jax.lax.dynamic_slice_in_dim(array, sequence, 1, axis=array.ndim + of.batch)
            place = [jnp.zeros_like(sequence)] * buffer.ndim
            place[of.batch], place[of.slot] = sequence, start[sequence].astype(sequence.dtype)
            return jax.lax.dynamic_update_slice(buffer, row, place)

        return list(map(write, buffers, new, axes))

    return jax.lax.fori_loop(0, start.shape[0], put, buffers)


def first_slots(cache: KVCache, slots: int) -> KVCache:
    """The cache of its first so many slots."""
    return _each(
        cache, lambda array, of: jax.lax.slice_in_dim(array, 0, min(slots, array.shape[of.slot]), axis=of.slot)
    )


def take_slots(cache: KVCache, slots: Int[Array, "batch place"]) -> KVCache:
    """The cache of some of its slots, in their order, for each sequence."""

    def take(array: Array, of: _Axes) -> Array:
        size = {array.ndim + of.batch: slots.shape[0], array.ndim + of.slot: slots.shape[1]}
        index = slots.reshape([size.get(axis, 1) for axis in range(array.ndim)])
        return jnp.take_along_axis(array, index, axis=of.slot)

    return _each(cache, take)


def take_sequences(cache: KVCache, index: Int[Array, " sequence"]) -> KVCache:
    """The cache of some of its sequences, perhaps several times each."""
    return _each(cache, lambda array, of: jnp.take(array, index, axis=of.batch))
