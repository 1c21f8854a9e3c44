"""A whole network in a fitted compression, and the bits that reading it takes."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import stored_alike
from jaxspec.compress.schemes.gaussian import GAUSSIAN_SHAPE
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.compress.schemes.plain_kv import KV_BITS
from jaxspec.compress.weights import rows_of
from jaxspec.models.config import INPUT_OF, DecoderConfig, kinds_of
from jaxspec.models.decoder import Params
from jaxspec.models.rounded_inputs import input_scale_of
from jaxspec.models.stored import Stored, stack_of
from jaxspec.settings.compressions import COMPRESSIONS

__all__ = ["fitted_config", "fitted_footprint", "fitted_network"]

#: From a matrix and the norms of its input channels to its compressed form.
Compression = Callable[[Float[Array, "row column"], Float[Array, " column"]], CompressedMatrix]


def fitted_network(name: str, params: Params, norms: Mapping[str, Float[Array, "layer column"]]) -> Params:
    """Parameters whose matrices are what is read back, rounded to the type that the stored ones have; with the scales of their
    inputs where activations are rounded so (see `fitted_config`).

    Args:
        name: of the registry.
        params: the target's, as stored.
        norms: L2 norm of each input channel over calibration tokens, by input group (see `INPUT_OF`).
    """
    facts = COMPRESSIONS[name]
    inputs = {
        kind: (stack_of(params["layers"][kind]), jnp.asarray(norms[INPUT_OF[kind]]))
        for kind in kinds_of(params["layers"])
    }
    made: dict[str, Any] = {kind: _of_layers(*of, compress=_function(facts.place)) for kind, of in inputs.items()}
    if facts.scales is not None:
        scales = _function(facts.scales)
        made |= {input_scale_of(kind): _scales_of_layers(*of, scales=scales) for kind, of in inputs.items()}
    return params | {"layers": params["layers"] | made}


def fitted_config(name: str, config: DecoderConfig) -> DecoderConfig:
    """Shape of a network in a compression, which rounds activations where the compression does.

    Raises:
        ValueError: it does, and the network has latent attention.
    """
    inputs = COMPRESSIONS[name].inputs
    return config if inputs is None else dataclasses.replace(config, rounded_inputs=inputs)


def fitted_footprint(name: str) -> Footprint:
    """Bits per weight of Gaussian matrices, whose rows are about as long as those of large networks."""
    made = jax.jit(_function(COMPRESSIONS[name].place))(
        jax.random.normal(jax.random.key(0), GAUSSIAN_SHAPE), jnp.ones(GAUSSIAN_SHAPE[1])
    )
    return stored_alike(float(made.bits.target), {}, KV_BITS)


@partial(jax.jit, static_argnames="compress")
def _of_layers(stack: Any, norms: Float[Array, "layer column"], *, compress: Compression) -> Stored:
    def one(layer: tuple[Any, Float[Array, " column"]]) -> Stored:
        values = layer[0].values()
        made = compress(rows_of(values).astype(jnp.float32), layer[1])
        return Stored.of(made.values.reshape(values.shape).astype(values.dtype))

    return jax.lax.map(one, (stack, norms))


@partial(jax.jit, static_argnames="scales")
def _scales_of_layers(
    stack: Any, norms: Float[Array, "layer column"], *, scales: Callable[[Array, Array], Array]
) -> Float[Array, "layer *expert column"]:
    lead = stack.shape[1:-2]  # experts of a layer share scales, as they share the norms of their inputs

    def one(layer: tuple[Any, Float[Array, " column"]]) -> Array:
        found = scales(rows_of(layer[0].values()).astype(jnp.float32), layer[1])
        return jnp.broadcast_to(found, (*lead, found.shape[-1]))

    return jax.lax.map(one, (stack, norms))


def _function(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    return vars(importlib.import_module(f"jaxspec.compress.fitted.{module}"))[function]
