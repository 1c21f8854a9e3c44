"""What a draft may take 8-bit weights for at each bit width: three readings of a slice, and a quantization of its own."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.formats.bit_slices import Reading
from jaxspec.formats.group_quantization import to_float16
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params

__all__ = ["DEDICATED", "READINGS", "read_network"]

#: Name of the quantization to few bits with scales of its own, which shares nothing with the target.
DEDICATED = "dedicated"

#: Ways in the order of the figure.
READINGS = ("augmentation", "rounding", "truncation", DEDICATED)

_GROUP = 32


def read_network(reading: str, bits: int, stored: Params, target: Params, config: DecoderConfig) -> Params:
    """The draft's parameters.

    Args:
        reading: one of `READINGS`. bits: 2 to 6.
        stored: the network in 16 bits, which is what a dedicated quantization starts from; target: its INT8 form, of which the
            others are slices.
    """
    source = (stored if reading == DEDICATED else target)["layers"]
    made = _read({kind: source[kind] for kind in config.matrix_kinds}, jnp.asarray(float(bits)), reading)
    return target | {"layers": target["layers"] | made}


@partial(jax.jit, static_argnames="reading")
def _read(stacks: dict[str, Array], bits: Float[Array, ""], reading: str) -> dict[str, Array]:
    """Of all layers and experts: each row is made alone."""
    if reading == DEDICATED:
        make = partial(_dedicated, bits=bits)
    else:
        scheme = dataclasses.replace(ELASTIC, reading=cast(Reading, reading))
        make = lambda rows: scheme.hard(rows, None, {"slice_bits": bits}).values
    return {kind: make(stack.reshape(-1, stack.shape[-1])).reshape(stack.shape) for kind, stack in stacks.items()}


def _dedicated(rows: Float[Array, "row column"], bits: Float[Array, ""]) -> Float[Array, "row column"]:
    """Symmetric integers of so many bits in groups of 32, scale = largest magnitude over the largest integer."""
    columns, most = rows.shape[-1], 2 ** (bits - 1) - 1
    groups = jnp.pad(rows, ((0, 0), (0, -columns % _GROUP))).reshape(len(rows), -1, _GROUP)
    scale = to_float16(jnp.max(jnp.abs(groups), axis=-1, keepdims=True) / most).astype(jnp.float32)
    integers = jnp.clip(jnp.round(groups / jnp.where(scale > 0, scale, 1.0)), -most, most)
    return (integers * scale).reshape(len(rows), -1)[:, :columns]
