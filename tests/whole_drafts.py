"""Drafts of a whole network at once, as `draft_view` makes them matrix by matrix: for networks that are small enough.

Each is one program: outside of one it would be hundreds.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hwmodels import Footprint
from jaxspec.compress.footprint import measured_footprint
from jaxspec.compress.kv import as_cache
from jaxspec.compress.weights import knobs_of_matrix, prepare
from jaxspec.models.config import kinds_of
from jaxspec.models.decoder import Params
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.matrix import stack_of

#: `prepare` as one program, as calibration runs it.
prepare_at_once = partial(jax.jit, static_argnames="scheme")(prepare)


def by_kind(bits):
    """Bits of a network whose layers all have the same matrices, as one array "layer kind"."""
    return jnp.stack([bits[kind] for kind in kinds_of(bits)], axis=-1)


class WholeDraft(NamedTuple):
    params: Params
    footprint: Footprint


class WholeCache(NamedTuple):
    cache: KVCache
    footprint: Footprint


def _weights(params, prepared, knobs, make):
    made = {
        kind: jax.vmap(make(knobs.scheme.of_kind(kind)))(
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
def hard_weights(params, prepared, knobs):
    """Values and footprint of the hard draft."""
    return _weights(params, prepared, knobs, lambda scheme: scheme.hard)


@jax.jit
def soft_weights(params, prepared, knobs, temperature):
    """Values and footprint of the soft draft."""
    return _weights(params, prepared, knobs, lambda scheme: lambda *of: scheme.soft(*of, temperature))


def _kv(kv, knobs, make):
    made = jax.vmap(make)(kv.rows, knobs.of_layers)
    cache = jax.vmap(lambda rows: as_cache(rows, kv.shape))(made.rows)
    return WholeCache(cache, measured_footprint({}, made.bits))


@jax.jit
def hard_kv(kv, knobs):
    """The cache as the hard draft reads it."""
    return _kv(kv, knobs, knobs.scheme.hard_kv)


def soft_kv(kv, knobs, temperature):
    """The cache as the soft draft reads it."""
    return _kv(kv, knobs, lambda *of: knobs.scheme.soft_kv(*of, temperature))
