"""Quantization after input channels were scaled: what is hard to round in activations or weights moves to the other side.

A channel's scale multiplies its weights before rounding and divides what is read back. An engine divides the activations
instead, by scales that it folds into whatever comes before, so that they take no room.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.compress.schemes import number_forms
from jaxspec.compress.schemes.interface import CompressedMatrix
from jaxspec.compress.schemes.number_forms import NumberForm

__all__ = [
    "awq_int4",
    "input_scale",
    "key_scale",
    "scaled_rounding",
    "smoothing_scale",
    "smoothquant_w8",
]

_INT8 = number_forms.channels("int8", 8.0)
_INT4 = number_forms.groups("q4_0", 4.0)

#: Powers that AWQ tries.
_POWERS = 20


def smoothquant_w8(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """8 bits per row, after the columns were multiplied by `smoothing_scale`."""
    return scaled_rounding(matrix, _smoothing(matrix, channel_norm), _INT8)


def smoothing_scale(
    matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]
) -> Float[Array, " column"]:
    """Roots of norm over largest weight (SmoothQuant, Eq. 4 with alpha = 1/2), brought to mean 1."""
    return _mean_one(_smoothing(matrix, channel_norm))


def _smoothing(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Float[Array, " column"]:
    largest = jnp.max(jnp.abs(matrix), axis=0)
    return jnp.sqrt(_positive(channel_norm) / _positive(largest))


def awq_int4(matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> CompressedMatrix:
    """4-bit groups; scales are the power of the norms, 0 to 1, whose error weighted by squared norms is the smallest."""
    norms = _positive(channel_norm)

    def error(power: Array) -> Array:
        made = scaled_rounding(matrix, norms**power, _INT4).values
        return jnp.sum(jnp.square((made - matrix) * norms[None]))

    powers = jnp.linspace(0.0, 1.0, _POWERS, endpoint=False)
    return scaled_rounding(matrix, norms ** powers[jnp.argmin(jax.lax.map(error, powers))], _INT4)


def scaled_rounding(
    matrix: Float[Array, "row column"], scale: Float[Array, " column"], form: NumberForm
) -> CompressedMatrix:
    """The matrix rounded in a form after its columns were multiplied by scales, which are brought to mean 1 first."""
    scale = _mean_one(scale)[None]
    bits = jnp.full((), form.bits(*matrix.shape))
    return CompressedMatrix(form.rounded(matrix * scale) / scale, BitsPerValue(bits, bits))


def key_scale(largest: Float[Array, "head element"]) -> Float[Array, " channel"]:
    """Scales of a layer's keys by channel: roots of the largest sizes (QoQ's SmoothAttention with alpha = 1/2).

    Args:
        largest: of each element of a head over calibration text; of both elements of a rotary plane the larger.
    Source: Lin et al. 2024, arXiv:2405.04532, Section 4.2.
    """
    return _mean_one(jnp.sqrt(_positive(largest.reshape(-1))))


def input_scale(
    size: Float[Array, " column"], largest_weight: Float[Array, " column"], *, input_power: float, weight_power: float
) -> Float[Array, " column"]:
    """What inputs are divided by, brought to mean 1: powers of their sizes over powers of the weights that read them."""
    return _mean_one(_positive(size) ** input_power / _positive(largest_weight) ** weight_power)


def _mean_one(scale: Float[Array, " column"]) -> Float[Array, " column"]:
    """The scales with a geometric mean of 1."""
    return scale / jnp.exp(jnp.mean(jnp.log(scale)))


def _positive(numbers: Float[Array, " column"]) -> Float[Array, " column"]:
    """The numbers, those near 0 lifted: a channel that nothing flows through has no scale of its own."""
    return jnp.maximum(numbers, 1e-4 * jnp.max(numbers) + 1e-12)
