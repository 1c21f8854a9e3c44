"""The draft's view of the target's KV cache, all layers: a scheme's functions of one layer's rows, mapped over the layers.

Keys and values of a token are each one row of (KV head, head dimension). Where they differ in length, as the rotated key and
the latent of latent attention do, both together are one row, which is what such a cache holds of a token. The target stores
its KV in the 16 bits that the network is stored in, or in blocks that share exponents too (`stored_kv`); what the draft writes
for tokens not yet verified stays at compute precision and is overwritten by verification, so it is never compressed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.scheme import CompressedKV, Scheme
from jaxspec.formats import mx_truncated
from jaxspec.formats.group_quantization import to_float16
from jaxspec.models.blocks.interface import CachedShape, KVCodec
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.mixed_cache import own_part, whole_slot
from jaxspec.models.streamed import Streamed
from jaxspec.settings.knobs import SharedExponents, StoredDtype


def round_kv(x: Array) -> Array:
    """KV codec of a target in bfloat16: what it writes is rounded to that, in the step that writes it and in all later ones."""
    return x.astype(jnp.bfloat16).astype(x.dtype)


def round_kv_to_float16(x: Array) -> Array:
    """`round_kv` of a target in float16; what is beyond its largest value becomes infinite, as it does in such a cache."""
    return to_float16(x).astype(x.dtype)


#: Of a target stored in a type.
_ROUNDED: dict[StoredDtype, KVCodec] = {"bfloat16": round_kv, "float16": round_kv_to_float16}


def rounded_kv(config: DecoderConfig) -> KVCodec:
    """Keys and values in the 16 bits that a network is stored in."""
    return _ROUNDED[config.stored_dtype]


def stored_kv(config: DecoderConfig) -> KVCodec:
    """The KV codec of a target: `rounded_kv`, or blocks that share exponents too, in each token's keys and in its values."""
    form = config.shared_kv_exponents
    return rounded_kv(config) if form is None else partial(_share_exponents, form=form)


def _share_exponents(x: Float[Array, "batch token head element"], form: SharedExponents) -> Array:
    rows = x.astype(jnp.bfloat16).reshape(*x.shape[:2], -1)
    return mx_truncated.round_to(rows, form).astype(x.dtype).reshape(x.shape)


@struct.dataclass
class PreparedKV:
    """Keys and values of known tokens, prepared once for any knobs.

    Attributes:
        rows: the scheme's own; leaves are "layer part batch slot ...". Layers with linear attention have none: zeros.
        shape: static; what the cache holds of a token, in layers that attend.
        position: as in `KVCache`.
        kept: where some layers have linear attention, the whole cache as it is; only what these hold of it is read.
    """

    rows: Any
    shape: CachedShape = struct.field(pytree_node=False)
    position: Int[Array, "layer batch slot"] | None = None
    kept: KVCache | None = None

    def in_layer(self, windows: Int[Array, " batch"]) -> PreparedKV:
        """Some of the sequences, in a loop that has taken one layer; leaves are "part batch slot ..."."""
        taken = lambda axis: partial(jnp.take, indices=windows, axis=axis)
        return dataclasses.replace(
            self,
            rows=jax.tree.map(taken(1), self.rows),
            position=jax.tree.map(taken(0), self.position),
            kept=jax.tree.map(taken(0), self.kept),
        )

    def read(self, compressed: CompressedKV) -> KVCache:
        """The cache of one layer, of these tokens, in which their rows are these."""
        cache = as_cache(compressed.rows, self.shape, self.position)
        return cache if self.kept is None else _in_whole_slots(cache, self.kept)


def prepare_kv(scheme: Scheme, cache: KVCache) -> PreparedKV:
    """Prepare the target's KV of calibration text (values that 16 bits hold already).

    What layers with linear attention hold is kept as it is: no scheme stores it in fewer bits.
    """
    prepare = jax.vmap(lambda cache: scheme.kv.prepare(token_rows(cache)))
    if cache.mixed is None:
        return PreparedKV(rows=prepare(cache), shape=_shape(cache), position=cache.position)
    kept = dataclasses.replace(cache, position=None)
    if cache.mixed.attention is None:
        return PreparedKV((), _shape(cache), cache.position, kept)
    layers, count = jnp.asarray(cache.mixed.attending), cache.num_layers
    spread = lambda leaf: jnp.zeros((count, *leaf.shape[1:]), leaf.dtype).at[layers].set(leaf)
    rows = jax.tree.map(spread, prepare(_attending(cache)))
    return PreparedKV(rows, cache.mixed.attention, cache.position, kept)


def _attending(cache: KVCache) -> KVCache:
    """Keys and values of the layers that attend, of a cache in which others have linear attention; without positions."""
    assert cache.mixed is not None
    layers, shape = jnp.asarray(cache.mixed.attending), cache.mixed.attention
    assert shape is not None
    key, value = jax.vmap(partial(own_part, own=shape))(cache.key[layers], cache.value[layers])
    return KVCache(key, value)


def _in_whole_slots(cache: KVCache, like: KVCache) -> KVCache:
    """A layer's keys and values as they lie in a cache in which other layers have linear attention."""
    key, value = whole_slot(cache.key, cache.value, _shape(like))
    return dataclasses.replace(cache, key=key, value=value, mixed=like.mixed)


def join_kv(parts: Sequence[PreparedKV], *, stream: bool) -> PreparedKV:
    """The known tokens of several batches as one.

    Args:
        stream: leave the rows in host memory; the parts must be there.
    """

    def in_host(axis: int, *rows: np.ndarray) -> Streamed:
        return Streamed.of([np.concatenate([part[layer] for part in rows], axis=axis) for layer in range(len(rows[0]))])

    join = lambda axis: lambda *leaves: jnp.concatenate(leaves, axis=axis)
    held = lambda axis: partial(in_host, axis - 1) if stream else join(axis)
    return dataclasses.replace(
        parts[0],
        rows=jax.tree.map(held(2), *(part.rows for part in parts)),
        position=jax.tree.map(join(1), *(part.position for part in parts)),
        kept=jax.tree.map(held(1), *(part.kept for part in parts)),
    )


def _shape(cache: KVCache) -> CachedShape:
    """Of one layer's cache or of all layers'."""
    return CachedShape(cache.key.shape[-3], cache.key.shape[-2], cache.value.shape[-1])


def token_rows(cache: KVCache) -> Float[Array, "part batch slot column"]:
    """Rows of the tokens of one layer: keys (part 0) and values (part 1); one part of both where they differ in length."""
    slots_first = jnp.moveaxis(cache.key, 3, 1), jnp.moveaxis(cache.value, 2, 1)
    key, value = (part.reshape(*part.shape[:2], -1) for part in slots_first)
    if key.shape == value.shape:
        return jnp.stack([key, value])
    return jnp.concatenate([key, value], axis=-1)[None]


def as_cache(
    rows: Float[Array, "part batch slot column"], shape: CachedShape, position: Int[Array, "batch slot"] | None = None
) -> KVCache:
    """Inverse of `token_rows`."""
    columns = shape.heads * shape.key_dim
    key, value = rows if len(rows) == 2 else (rows[0, ..., :columns], rows[0, ..., columns:])
    key, value = (part.reshape(*part.shape[:2], shape.heads, -1) for part in (key, value))
    return KVCache(key=key.transpose(0, 2, 3, 1), value=value.transpose(0, 2, 1, 3), position=position)


def compress_cache(cache: KVCache, knobs: Knobs) -> KVCache:
    """All layers' KV seen for the first time, inside a decoding loop, as the hard draft reads it; what layers with linear
    attention hold as it is."""

    def one(cache: KVCache, values: dict[str, Array]) -> KVCache:
        return as_cache(knobs.scheme.kv.encode(token_rows(cache), values), _shape(cache), cache.position)

    if cache.mixed is None:
        return jax.vmap(one)(cache, knobs.of_layers)
    if cache.mixed.attention is None:
        return cache
    layers = jnp.asarray(cache.mixed.attending)
    read = jax.vmap(one)(_attending(cache), {name: value[layers] for name, value in knobs.of_layers.items()})
    whole = jax.vmap(partial(_in_whole_slots, like=jax.tree.map(lambda leaf: leaf[0], cache)))(read)
    key, value = cache.key.at[layers].set(whole.key), cache.value.at[layers].set(whole.value)
    return dataclasses.replace(cache, key=key, value=value)
