"""Activations rounded to few bits where they enter a matrix product, as engines with integer arithmetic round them.

Weights stay what is read back of them, in the space of the network itself: an input is divided by scales or rotated, rounded,
and brought back. The product is that of an engine that multiplies in the other space, for its weights were rounded there too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.formats import asymmetric, group_quantization
from jaxspec.models.rotated_rows import rotate_rows
from jaxspec.models.spread_rows import Spread, spread_rows
from jaxspec.settings.rounded_inputs import RoundedInputs

__all__ = ["input_scale_of", "input_space_of", "rounded_input"]


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
