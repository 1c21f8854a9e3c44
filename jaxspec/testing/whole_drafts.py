"""Drafts of a whole network at once, as `draft_view` makes them matrix by matrix: for networks that are small enough.

Each is one program: outside of one it would be hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwmodels import Footprint
from jaxspec.compress.footprint import measured_footprint
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import PreparedKV, as_cache
from jaxspec.compress.weights import knobs_of_matrix, prepare
from jaxspec.models.config import kinds_of
from jaxspec.models.decoder import Params
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.matrix import stack_of

__all__ = [
    "WholeCache",
    "WholeDraft",
    "by_kind",
    "hard_kv",
    "hard_weights",
    "prepare_at_once",
    "soft_kv",
    "soft_weights",
]

#: `prepare` as one program, as calibration runs it.
prepare_at_once = partial(jax.jit, static_argnames="scheme")(prepare)


def by_kind(bits: Mapping[str, Array]) -> Array:
    """Bits of a network whose layers all have the same matrices, as one array "layer kind"."""
    return jnp.stack([bits[kind] for kind in kinds_of(bits)], axis=-1)


class WholeDraft(NamedTuple):
    """A draft with the bits that it reads."""

    params: Params
    footprint: Footprint


class WholeCache(NamedTuple):
    """A cache with the bits that are read of it."""

    cache: KVCache
    footprint: Footprint


def _weights(params: Params, prepared: Any, knobs: Knobs, make: Callable[[Any], Any]) -> WholeDraft:
    made = {
        kind: jax.vmap(make(knobs.scheme.of_kind(kind).matrix))(
            stack_of(params["layers"][kind]).values(),
            prepared[kind],
            knobs_of_matrix(knobs.values, knobs.scheme, place),
        )
        for place, kind in enumerate(kinds_of(params["layers"]))
    }
    matrices = {kind: matrix.values for kind, matrix in made.items()}
    # Bits of a cache are not told here.
    footprint = measured_footprint({kind: matrix.bits for kind, matrix in made.items()}, made["q"].bits)
    return WholeDraft(params | {"layers": params["layers"] | matrices}, footprint)


@jax.jit
def hard_weights(params: Params, prepared: Any, knobs: Knobs) -> WholeDraft:
    """Values and footprint of the hard draft."""
    return _weights(params, prepared, knobs, lambda codec: codec.hard)


@jax.jit
def soft_weights(params: Params, prepared: Any, knobs: Knobs, temperature: Any) -> WholeDraft:
    """Values and footprint of the soft draft."""
    return _weights(params, prepared, knobs, lambda codec: lambda *of: codec.soft(*of, temperature))


def _kv(kv: PreparedKV, knobs: Knobs, make: Any) -> WholeCache:
    made = jax.vmap(make)(kv.rows, knobs.of_layers)
    cache = jax.vmap(lambda rows: as_cache(rows, kv.shape))(made.rows)
    return WholeCache(cache, measured_footprint({}, made.bits))


@jax.jit
def hard_kv(kv: PreparedKV, knobs: Knobs) -> WholeCache:
    """The cache as the hard draft reads it."""
    return _kv(kv, knobs, knobs.scheme.kv.hard)


def soft_kv(kv: PreparedKV, knobs: Knobs, temperature: Any) -> WholeCache:
    """The cache as the soft draft reads it."""
    return _kv(kv, knobs, lambda rows, own: knobs.scheme.kv.soft(rows, own, temperature))
