"""Weights in few bits, the same for draft and target: groups with a scale, tiles of a matrix unit, channels, MX elements.

The target is the quantized network, and the draft is the target. Keys and values stay in 16 bits.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.3 (channels, as QNN has them), 5.1 (groups and tile
groups) and 7.1 (FFN down in Q8_0 beside Q4_0); OCP Microscaling Formats (MX) Specification v1.0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import stored_alike
from jaxspec.compress.schemes.huffman import GAUSSIAN_SHAPE
from jaxspec.compress.schemes.scheme import KV_BITS, CompressedMatrix, OwnKnobs, Scheme
from jaxspec.formats import group_quantization, mx, tile_layout
from jaxspec.formats.group_quantization import BLOCK, SCALE_BITS
from jaxspec.formats.patterns import BitsRead
from jaxspec.settings.knobs import StoredDtype
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = [
    "INT4_CHANNEL",
    "INT8_CHANNEL",
    "MXFP4",
    "MXFP8",
    "Q4_0",
    "Q4_0_DOWN8",
    "Q8_0",
    "TILE_Q4_0",
    "TILE_Q4_0_DOWN8",
    "TILE_Q8_0",
    "NumberForm",
    "QuantizedMatrix",
    "channels",
    "groups",
    "microscaling",
    "tiles",
]

# How a matrix is stored in few bits: what is read back of it, and how many bits each weight takes, padding included.


@dataclasses.dataclass(frozen=True)
class NumberForm:
    """One way to store a matrix.

    Attributes:
        rounded: matrices "*b row column", each stored by itself -> what is read back, in float32.
        bits: rows and columns of a matrix -> bits per weight.
    """

    rounded: Callable[[Float[Array, "*b row column"]], Float[Array, "*b row column"]] = dataclasses.field(repr=False)
    bits: Callable[[int, int], float] = dataclasses.field(repr=False)


def groups(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Groups of 32 along a row, which is what an output sums over; zeros fill up the last one."""

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        columns = matrix.shape[-1]
        padded = jnp.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, -columns % BLOCK)])
        return group_quantization.decode(group_quantization.encode(padded, scheme))[..., :columns]

    return NumberForm(
        rounded, lambda rows, columns: math.ceil(columns / BLOCK) * (BLOCK * code_bits + SCALE_BITS) / columns
    )


def tiles(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Groups of 32 consecutive weights in the order of a matrix unit's tiles: 2 inputs by 16 outputs each.

    A tile's rows are inputs, since weights stand right of activations there.
    """

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        across = jnp.swapaxes(matrix, -1, -2)
        return jnp.swapaxes(tile_layout.decode(tile_layout.encode(across, scheme)), -1, -2)

    def bits(rows: int, columns: int) -> float:
        return (
            math.prod(tile_layout.padded_shape((columns, rows))) * (code_bits + SCALE_BITS / BLOCK) / (rows * columns)
        )

    return NumberForm(rounded, bits)


def channels(scheme: group_quantization.Scheme, code_bits: float) -> NumberForm:
    """Symmetric integers with one scale for each row, an output channel."""

    def rounded(matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        return group_quantization.decode(group_quantization.encode(matrix, scheme, group_size=None))

    return NumberForm(rounded, lambda rows, columns: code_bits + SCALE_BITS / columns)


def microscaling(element: mx.ElementFormat) -> NumberForm:
    """MX blocks of 32 along a row."""
    return NumberForm(
        lambda matrix: mx.decode(mx.encode(matrix, element)),
        lambda rows, columns: mx.num_bits((rows, columns), element) / (rows * columns),
    )


#: What leads out of feed-forward networks, as networks name it.
_DOWN = ("down", "expert_down", "shared_down")


@dataclasses.dataclass(frozen=True)
class QuantizedMatrix:
    """A `MatrixCodec`.

    Attributes:
        form: how a matrix is stored.
    """

    form: NumberForm

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> None:
        """Nothing: weights are rounded to nearest, whatever they are multiplied with."""
        del matrix, channel_norm

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """What is read back, in float32; storing that again changes nothing."""
        return self.form.rounded(matrix)

    def hard(self, matrix: Float[Array, "row column"], prepared: None, knobs: OwnKnobs) -> CompressedMatrix:
        """The target's matrix.

        Of experts below one another whose rows are no whole number of groups, a group of a tile spans two: their draft then
        differs a little from the target.
        """
        del prepared, knobs
        bits = jnp.full((), self.form.bits(*matrix.shape))
        return CompressedMatrix(self.target(matrix), BitsRead(bits, bits))

    def soft(
        self, matrix: Float[Array, "row column"], prepared: None, knobs: OwnKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedMatrix:
        """The target's matrix: there is nothing to choose."""
        del temperature
        return self.hard(matrix, prepared, knobs)


def _scheme(name: str, form: NumberForm, *, down: Scheme | None = None) -> Scheme:
    """Args: down: of what leads out of feed-forward networks, where it is another."""
    apart = () if down is None else tuple((kind, down) for kind in _DOWN)

    def footprint(knobs: Mapping[str, float], dtype: StoredDtype) -> Footprint:
        """Known without counting; rows are whole groups, and channels those of the Gaussian rows."""
        del dtype
        others = {kind: scheme.expected_footprint(knobs).target_weight_bits["down"] for kind, scheme in apart}
        return stored_alike(form.bits(*GAUSSIAN_SHAPE), others, KV_BITS)

    return Scheme(SCHEME_FACTS[name], footprint, QuantizedMatrix(form), apart=apart)


#: 8-bit groups.
Q8_0 = _scheme("q8_0", groups("q8_0", 8.0))
#: 4-bit groups.
Q4_0 = _scheme("q4_0", groups("q4_0", 4.0))
#: 4-bit groups, FFN down in 8 bits.
Q4_0_DOWN8 = _scheme("q4_0-down8", groups("q4_0", 4.0), down=Q8_0)
#: 4-bit tile groups.
TILE_Q4_0 = _scheme("tile-q4_0", tiles("q4_0", 4.0))
#: 8-bit tile groups.
TILE_Q8_0 = _scheme("tile-q8_0", tiles("q8_0", 8.0))
#: 4-bit tile groups, FFN down in 8 bits.
TILE_Q4_0_DOWN8 = _scheme("tile-q4_0-down8", tiles("q4_0", 4.0), down=TILE_Q8_0)
#: 8 bits, a scale for each output channel.
INT8_CHANNEL = _scheme("int8-channel", channels("int8", 8.0))
#: 4 bits, a scale for each output channel.
INT4_CHANNEL = _scheme("int4-channel", channels("int4", 4.0))
#: E4M3 elements.
MXFP8 = _scheme("mxfp8", microscaling(mx.E4M3))
#: E2M1 elements.
MXFP4 = _scheme("mxfp4", microscaling(mx.E2M1))
