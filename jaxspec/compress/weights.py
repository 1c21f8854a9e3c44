"""Drafts from targets, all layers: a scheme's functions of one layer, mapped over the layers of a network."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.schemes.interface import CompressedLayer, Scheme
from jaxspec.models.decoder import Params


class DraftWeights(NamedTuple):
    """A draft.

    Attributes:
        params: the target's parameters with the matrices of the layers replaced.
        footprint: bits per stored weight, kind -> " layer"; nothing of the KV cache.
    """

    params: Params
    footprint: Footprint


def activation_norms(activations: dict[str, Array]) -> dict[str, Float[Array, "layer column"]]:
    """L2 norm of each input channel over all calibration tokens, per input group."""
    return {name: jnp.sqrt(jnp.sum(jnp.square(x), axis=(1, 2))) for name, x in activations.items()}


def prepare(scheme: Scheme, params: Params, norms: dict[str, Float[Array, "layer column"]]) -> Any:
    """What a scheme computes once of a target's layers and its calibration text; leaves lead with a layer axis."""
    return jax.vmap(scheme.prepare)(params["layers"], norms)


def hard_draft(params: Params, prepared: Any, knobs: Knobs) -> DraftWeights:
    """The bit-exact draft, by the knobs' own scheme."""
    return _assemble(params, jax.vmap(knobs.scheme.hard)(params["layers"], prepared, knobs.values))


def soft_draft(params: Params, prepared: Any, knobs: Knobs, temperature: Float[Array, ""] | float) -> DraftWeights:
    """The differentiable draft; tends to `hard_draft` as the temperature (> 0) falls, away from half-way knobs."""
    one = lambda layer, found, values: knobs.scheme.soft(layer, found, values, temperature)
    return _assemble(params, jax.vmap(one)(params["layers"], prepared, knobs.values))


def _assemble(params: Params, compressed: CompressedLayer) -> DraftWeights:
    return DraftWeights(params | {"layers": params["layers"] | compressed.matrices}, compressed.footprint)
