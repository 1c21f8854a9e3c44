"""A whole network in a fitted compression, and the bits that reading it takes."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.fitted.methods import key_scale
from jaxspec.compress.footprint import stored_alike
from jaxspec.compress.schemes.huffman import GAUSSIAN_SHAPE
from jaxspec.compress.schemes.scheme import KV_BITS, CompressedMatrix
from jaxspec.compress.weights import rows_of
from jaxspec.formats import asymmetric
from jaxspec.models.config import INPUT_OF, DecoderConfig, kinds_of
from jaxspec.models.decoder import Params
from jaxspec.models.matrix import Stored, stack_of
from jaxspec.models.rounded_inputs import KEY_SCALE, input_scale_of, input_space_of
from jaxspec.settings.compressions import COMPRESSIONS, CompressionFacts

__all__ = ["CalibrationSample", "fitted_config", "fitted_footprint", "fitted_network"]

#: From a matrix, the norms of its input channels and, where there is one, its inputs' space to its compressed form.
Compression = Callable[..., CompressedMatrix]

#: Elements of a head's key or value where no architecture is at hand: those of most large networks.
_HEAD_ELEMENTS = 128.0


class CalibrationSample(NamedTuple):
    """What some compressions know of calibration text beside norms.

    Attributes:
        inputs: rows that enter the matrices, by input group (see `INPUT_OF`).
        largest_keys: largest size of each element of the keys, of both elements of a rotary plane the larger.
    """

    inputs: Mapping[str, Float[Array | np.ndarray, "layer row column"]]
    largest_keys: Float[Array | np.ndarray, "layer head element"]


def fitted_network(
    name: str,
    params: Params,
    norms: Mapping[str, Float[Array, "layer column"]],
    sample: CalibrationSample | None = None,
    spaces: MutableMapping[tuple[str, ...], Any] | None = None,
) -> Params:
    """Parameters whose matrices are what is read back, rounded to the type that the stored ones have; with the scales and
    spaces of inputs, and the scales of keys, where these are rounded so (see `fitted_config`).

    Args:
        name: of the registry.
        params: the target's, as stored.
        norms: L2 norm of each input channel over calibration tokens, by input group (see `INPUT_OF`).
        sample: of the same text; read by compressions whose facts say that they need one.
        spaces: of inputs, which other compressions of these parameters and this text made; takes those that are made here.
    Raises:
        ValueError: it is not given and is needed.
    """
    facts = COMPRESSIONS[name]
    if facts.needs_sample and sample is None:
        raise ValueError(f"{name} is fitted to a sample of calibration text, and none came; give a CalibrationSample")
    stacks = {kind: stack_of(params["layers"][kind]) for kind in kinds_of(params["layers"])}
    inputs = {kind: (stack, jnp.asarray(norms[INPUT_OF[kind]])) for kind, stack in stacks.items()}
    # Row by row, or step by step, most compressions keep one core busy.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        own = {} if sample is None else _spaces(facts, stacks, sample.inputs, pool, {} if spaces is None else spaces)

        def compressed(kind: str) -> Stored:
            return _of_layers(*inputs[kind], own.get(INPUT_OF[kind]), compress=_function(facts.of(kind).place))

        made: dict[str, Any] = dict(zip(inputs, pool.map(compressed, inputs), strict=True))
    if facts.scales is not None:
        scales = _function(facts.scales)
        made |= {input_scale_of(kind): _scales_of_layers(*of, scales=scales) for kind, of in inputs.items()}
    for kind in (kind for kind in stacks if INPUT_OF[kind] in own):
        space = own[INPUT_OF[kind]]
        made |= {input_scale_of(kind): _of_experts(space.scale, stacks[kind])}
        if facts.inputs is not None and facts.inputs.of(kind).spread:
            made |= {each: getattr(space.space, field) for field, each in input_space_of(kind).items()}
    if facts.kv is not None and facts.kv.smoothed_keys and sample is not None:
        made[KEY_SCALE] = jax.vmap(key_scale)(jnp.asarray(sample.largest_keys))
    return params | {"layers": params["layers"] | made}


def fitted_config(name: str, config: DecoderConfig) -> DecoderConfig:
    """Shape of a network in a compression, which rounds activations, keys and values where the compression does.

    Raises:
        ValueError: it does, and the network has latent attention; or experts, whose inputs no space is made for.
    """
    facts = COMPRESSIONS[name]
    # A cache of integers is none of blocks with a shared exponent.
    shared = config.shared_kv_exponents if facts.kv is None else None
    return dataclasses.replace(config, rounded_inputs=facts.inputs, integer_kv=facts.kv, shared_kv_exponents=shared)


def fitted_footprint(name: str, head_elements: float = _HEAD_ELEMENTS) -> Footprint:
    """Bits per weight of Gaussian matrices, whose rows are about as long as those of large networks, and per KV element.

    Args:
        head_elements: of a head's key or value.
    """
    facts = COMPRESSIONS[name]
    made = jax.jit(_function(facts.place))(
        jax.random.normal(jax.random.key(0), GAUSSIAN_SHAPE), jnp.ones(GAUSSIAN_SHAPE[1])
    )
    kv_bits = KV_BITS if facts.kv is None else asymmetric.bits_per_element(facts.kv.bits, head_elements)
    return stored_alike(float(made.bits.target), {}, kv_bits)


@partial(jax.jit, static_argnames="compress")
def _of_layers(stack: Any, norms: Float[Array, "layer column"], spaces: Any, *, compress: Compression) -> Stored:
    def one(layer: tuple[Any, Float[Array, " column"], Any]) -> Stored:
        values = layer[0].values()
        more = () if layer[2] is None else (layer[2],)
        made = compress(rows_of(values).astype(jnp.float32), layer[1], *more)
        return Stored.of(made.values.reshape(values.shape).astype(values.dtype))

    return jax.lax.map(one, (stack, norms, spaces))


def _spaces(
    facts: CompressionFacts,
    stacks: Mapping[str, Any],
    inputs: Mapping[str, Any],
    pool: Executor,
    made: MutableMapping[tuple[str, ...], Any],
) -> dict[str, Any]:
    """The space of each input group that is rounded in one, which all matrices that read it share."""
    groups: dict[tuple[str, str], list[str]] = {}
    for kind in stacks:
        place = facts.of(kind).spaces
        if place is not None:
            groups.setdefault((INPUT_OF[kind], place), []).append(kind)

    def make(group: tuple[str, ...]) -> Any:
        name, place, *kinds = group
        own = [stacks[kind] for kind in kinds]
        return _spaces_of_layers(own, jnp.asarray(inputs[name]), make=_function(place))

    wanted = [(*group, *kinds) for group, kinds in groups.items()]
    missing = [group for group in wanted if group not in made]
    made.update(zip(missing, pool.map(make, missing), strict=True))
    return {group[0]: made[group] for group in wanted}


@partial(jax.jit, static_argnames="make")
def _spaces_of_layers(
    stacks: list[Any], sample: Float[Array, "layer row column"], *, make: Callable[[Array, Array], Any]
) -> Any:
    def one(layer: tuple[list[Any], Float[Array, "row column"]]) -> Any:
        largest = [jnp.max(jnp.abs(rows_of(stack.values()).astype(jnp.float32)), axis=0) for stack in layer[0]]
        return make(jnp.max(jnp.stack(largest), axis=0), layer[1])

    return jax.lax.map(one, (stacks, sample))


@partial(jax.jit, static_argnames="scales")
def _scales_of_layers(
    stack: Any, norms: Float[Array, "layer column"], *, scales: Callable[[Array, Array], Array]
) -> Float[Array, "layer *expert column"]:
    def one(layer: tuple[Any, Float[Array, " column"]]) -> Array:
        return scales(rows_of(layer[0].values()).astype(jnp.float32), layer[1])

    return _of_experts(jax.lax.map(one, (stack, norms)), stack)


def _of_experts(scales: Float[Array, "layer column"], stack: Any) -> Float[Array, "layer *expert column"]:
    """Experts of a layer share scales, as they share the norms of their inputs."""
    lead = stack.shape[1:-2]
    own = scales.reshape(len(scales), *(1 for _ in lead), scales.shape[-1])
    return jnp.broadcast_to(own, (len(scales), *lead, scales.shape[-1]))


def _function(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    return vars(importlib.import_module(module))[function]
