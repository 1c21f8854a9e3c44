"""Activations rounded to few bits where they enter a matrix product, as engines with integer arithmetic round them.

Weights stay what is read back of them, in the space of the network itself: an input is divided by scales or rotated, rounded,
and brought back. The product is that of an engine that multiplies in the other space, for its weights were rounded there too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels.numerics.compensated_sums import exact_matmul
from jaxspec.formats import asymmetric, group_quantization
from jaxspec.models.sizes import DecoderSizes
from jaxspec.settings.compressions import IntegerKV, RoundedInputs

__all__ = [
    "KEY_SCALE",
    "Spread",
    "as_integers",
    "block_of",
    "input_scale_of",
    "input_space_of",
    "plane_partners",
    "rotate_rows",
    "rounded_input",
    "spread_rows",
    "spread_shapes",
]


# Rows times a rotation that mixes their elements: what is large in a few of them is spread over many.
#
# Source: QuaRot, Ashkboos et al. 2024, arXiv:2404.00456 (Hadamard matrices); DuQuant, Lin et al. 2024, arXiv:2406.01721
# (blocks).

#: Largest block that is rotated.
_BLOCK = 128

#: Draws the signs, the same for all rows of a width: activations are rotated as the weights that they meet.
_SIGNS = 2024


def block_of(columns: int) -> int:
    """Elements that are rotated together: the largest power of two that divides the columns, at most 128."""
    return min(_BLOCK, columns & -columns)


def rotate_rows(matrix: Float[Array, "row column"], *, back: bool = False) -> Float[Array, "row column"]:
    """Each row times a rotation: random signs, then Hadamard blocks of the largest power of two that divides the columns.

    Args:
        back: static; the inverse.
    """
    rows, columns = matrix.shape
    block = block_of(columns)
    signs = jax.random.rademacher(jax.random.key(_SIGNS), (columns,), matrix.dtype)[None]
    hadamard = _hadamard(block).astype(matrix.dtype) / block**0.5
    mixed = lambda x: exact_matmul(x.reshape(rows, columns // block, block), hadamard).reshape(rows, columns)
    return mixed(matrix) * signs if back else mixed(matrix * signs)


def _hadamard(size: int) -> Float[Array, "size size"]:
    """Sylvester's matrix, symmetric, of a power of two."""
    index = jnp.arange(size)
    ones = jax.lax.population_count(index[:, None] & index[None])
    return 1.0 - 2.0 * (ones % 2).astype(jnp.float32)


# Rows in a space that was made for them: rotated block by block, reordered, and rotated block by block again.
#
# The first rotation spreads what is large over its block, the order deals large and small channels out to all blocks
# alike, and the second rotation spreads what is left. All three are found on calibration text (see
# `jaxspec.compress.fitted.methods`).
#
# Source: DuQuant, Lin et al. 2024, arXiv:2406.01721. One rotation serves all blocks of a row, as in the authors'
# program.


@struct.dataclass
class Spread:
    """A space for rows of some width.

    Attributes:
        rotations: both rotations of a block, the second below the first.
        order: the channel that comes to each place between the rotations; whole numbers, of any type.
    """

    rotations: Float[Array, "twice_block block"]
    order: Float[Array, " column"] | Int[Array, " column"]


def spread_shapes(columns: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the two arrays of a `Spread` for rows of a width."""
    return {"rotations": (2 * block_of(columns), block_of(columns)), "order": (columns,)}


def spread_rows(matrix: Float[Array, "row column"], space: Spread, *, back: bool = False) -> Float[Array, "row column"]:
    """Each row in the space, or back from it.

    Args:
        back: static; the inverse.
    """
    first, second = jnp.split(space.rotations.astype(matrix.dtype), 2)
    order = space.order.astype(jnp.int32)
    if back:
        return _turned(_turned(matrix, second.T)[:, jnp.argsort(order)], first.T)
    return _turned(_turned(matrix, first)[:, order], second)


def _turned(matrix: Float[Array, "row column"], rotation: Float[Array, "block block"]) -> Array:
    blocks = matrix.reshape(-1, rotation.shape[0])
    return exact_matmul(blocks, rotation).reshape(matrix.shape)


#: Symmetric integers by their bits.
_INTEGERS: dict[int, group_quantization.Scheme] = {4: "int4", 8: "int8"}


def input_scale_of(kind: str) -> str:
    """What the scales of a matrix's input channels are called among a layer's parameters."""
    return f"{kind}_input_scale"


def input_space_of(kind: str) -> dict[str, str]:
    """The same of the arrays of its inputs' space, by the fields of `Spread`."""
    return {field: f"{kind}_input_{field}" for field in ("rotations", "order")}


def rounded_input(
    x: Float[Array, "*b column"], form: RoundedInputs | None, weights: Mapping[str, Any], kind: str
) -> Float[Array, "*b column"]:
    """What a product with the matrix of some kind reads of its input; `x` itself without a form.

    Each row, a token's, is rounded by itself: to multiples of a scale in float16 that takes its largest element to
    2^(bits - 1) - 1, or to asymmetric integers (see `jaxspec.formats.asymmetric`).

    Args:
        form: static.
        weights: of one layer, or of one expert; read only if the form is scaled or spread.
    Gradient: that of the scale alone, as integers are piecewise constant.
    """
    if form is None:
        return x
    form = form.of(kind)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).astype(jnp.float32)
    scale = weights[input_scale_of(kind)].astype(jnp.float32)[None] if form.scaled else None
    rows = rows if scale is None else rows / scale
    rows = rotate_rows(rows) if form.rotated else rows
    space = Spread(**{field: weights[name] for field, name in input_space_of(kind).items()}) if form.spread else None
    rows = rows if space is None else spread_rows(rows, space)
    rows = _integers(rows, form)
    rows = rows if space is None else spread_rows(rows, space, back=True)
    rows = rotate_rows(rows, back=True) if form.rotated else rows
    rows = rows if scale is None else rows * scale
    return rows.reshape(x.shape).astype(x.dtype)


def _integers(rows: Float[Array, "row column"], form: RoundedInputs) -> Float[Array, "row column"]:
    if form.range_share is not None:
        return asymmetric.decode(asymmetric.encode(rows, form.bits, share=form.range_share))
    return group_quantization.decode(group_quantization.encode(rows, _INTEGERS[form.bits], group_size=None))


# Keys and values rounded to integers as they are written, so that every step reads what a cache of integers holds.
#
# Keys stay in the space of the network itself, as inputs do above: they are divided by the
# scales of their channels, rounded, and multiplied by them again. An engine divides the rows of the key's matrix once
# and multiplies those of the query's, which rotary embeddings allow where both elements of a plane share a scale;
# scores are the same. So they are where an engine rotates keys and queries alike, and queries that are smoothed and
# rounded would not be: no form has both.
#
# Source: QoQ, Lin et al. 2024, arXiv:2405.04532 (SmoothAttention; a scale for each token and head); DuQuant, Lin et al.
# 2024, arXiv:2406.01721 (queries and keys in Hadamard blocks, with ranges clipped as those of activations are).

#: What the scales of keys' channels are called among a layer's parameters.
KEY_SCALE = "key_scale"


def as_integers(
    query: Float[Array, "batch token query_head element"],
    key: Float[Array, "batch token head element"],
    value: Float[Array, "batch token head element"],
    form: IntegerKV | None,
    weights: Mapping[str, Any],
) -> tuple[
    Float[Array, "batch token query_head element"],
    Float[Array, "batch token head element"],
    Float[Array, "batch token head element"],
]:
    """What attention multiplies queries by, and a cache holds of new keys (both behind rotary embeddings) and values; all
    three themselves without a form.

    Args:
        form: static.
        weights: of one layer; read only if keys are smoothed.
    Gradient: that of the scales alone, as integers are piecewise constant.
    """
    if form is None:
        return query, key, value
    scale = weights[KEY_SCALE].astype(key.dtype).reshape(1, 1, *key.shape[2:]) if form.smoothed_keys else None
    key = _rounded_key(key if scale is None else key / scale, form)
    key = key if scale is None else key * scale
    return _rounded_key(query, form) if form.queries else query, key, _rounded(value, form.bits)


def _rounded_key(x: Float[Array, "batch token head element"], form: IntegerKV) -> Array:
    if not form.rotated_keys:
        return _rounded(x, form.bits, form.key_share)
    rows = rotate_rows(x.reshape(-1, x.shape[-1]))
    return rotate_rows(_rounded(rows, form.bits, form.key_share), back=True).reshape(x.shape)


def _rounded(x: Float[Array, "*b element"], bits: int, share: float = 1.0) -> Array:
    return asymmetric.decode(asymmetric.encode(x, bits, share=share)).astype(x.dtype)


def plane_partners(sizes: DecoderSizes) -> np.ndarray:
    """For each element of a head, the one that a rotary embedding turns it with; itself where nothing turns it."""
    own = np.arange(sizes.head_dim)
    if sizes.ropes == (None,):
        return own
    turned, planes = own[: 2 * sizes.planes], sizes.planes
    other = turned ^ 1 if sizes.interleaved_rope else (turned + planes) % (2 * planes)
    return np.concatenate([other, own[2 * planes :]])
