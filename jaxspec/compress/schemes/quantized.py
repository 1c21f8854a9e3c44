"""Weights in few bits, the same for draft and target: groups with a scale, tiles of a matrix unit, channels, MX elements.

The target is the quantized network, and the draft is the target. Keys and values stay in 16 bits.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.3 (channels, as QNN has them), 5.1 (groups and tile
groups) and 7.1 (FFN down in Q8_0 beside Q4_0); OCP Microscaling Formats (MX) Specification v1.0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import BitsPerValue, stored_alike
from jaxspec.compress.schemes import number_forms
from jaxspec.compress.schemes.huffman import GAUSSIAN_SHAPE
from jaxspec.compress.schemes.number_forms import NumberForm
from jaxspec.compress.schemes.scheme import KV_BITS, CompressedMatrix, OwnKnobs, Scheme
from jaxspec.formats import mx
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
    "QuantizedMatrix",
]

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
        return CompressedMatrix(self.target(matrix), BitsPerValue(bits, bits))

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
Q8_0 = _scheme("q8_0", number_forms.groups("q8_0", 8.0))
#: 4-bit groups.
Q4_0 = _scheme("q4_0", number_forms.groups("q4_0", 4.0))
#: 4-bit groups, FFN down in 8 bits.
Q4_0_DOWN8 = _scheme("q4_0-down8", number_forms.groups("q4_0", 4.0), down=Q8_0)
#: 4-bit tile groups.
TILE_Q4_0 = _scheme("tile-q4_0", number_forms.tiles("q4_0", 4.0))
#: 8-bit tile groups.
TILE_Q8_0 = _scheme("tile-q8_0", number_forms.tiles("q8_0", 8.0))
#: 4-bit tile groups, FFN down in 8 bits.
TILE_Q4_0_DOWN8 = _scheme("tile-q4_0-down8", number_forms.tiles("q4_0", 4.0), down=TILE_Q8_0)
#: 8 bits, a scale for each output channel.
INT8_CHANNEL = _scheme("int8-channel", number_forms.channels("int8", 8.0))
#: 4 bits, a scale for each output channel.
INT4_CHANNEL = _scheme("int4-channel", number_forms.channels("int4", 4.0))
#: E4M3 elements.
MXFP8 = _scheme("mxfp8", number_forms.microscaling(mx.E4M3))
#: E2M1 elements.
MXFP4 = _scheme("mxfp4", number_forms.microscaling(mx.E2M1))
