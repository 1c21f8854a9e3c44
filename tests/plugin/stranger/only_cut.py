"""A scheme: the draft reads the high bits of every weight; nothing is pruned, and keys and values stay as they are."""

import dataclasses

import jax.numpy as jnp

from jaxspec.compress.blending import blend_cuts
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes import CompressedMatrix, Scheme
from jaxspec.formats.patterns import BFLOAT16, BitsRead, from_bits, high_part, to_bits
from jaxspec.settings.knobs import KnobSpec
from jaxspec.settings.schemes import SchemeFacts

UNREAD_BITS = KnobSpec(
    "unread_bits", "Mantissa bits of a weight that the draft does not read.", default=3.0, low=0.0, high=7.0, whole=True
)


@dataclasses.dataclass(frozen=True)
class CutMatrix:
    """A `MatrixCodec`."""

    def prepare(self, matrix, channel_norm):
        """Nothing; calibration is not used."""

    def hard(self, matrix, prepared, knobs):
        """Whole cut bits."""
        cut = jnp.round(knobs["unread_bits"]).astype(jnp.int32)
        return CompressedMatrix(from_bits(high_part(_patterns(matrix), cut), BFLOAT16), _read(cut))

    def soft(self, matrix, prepared, knobs, temperature):
        """Fractional cuts blend their neighbours."""
        mix = blend_cuts(knobs["unread_bits"], temperature)
        less, more = (from_bits(high_part(_patterns(matrix), cut), BFLOAT16) for cut in (mix.low, mix.low + 1))
        blended = less.astype(jnp.float32) + mix.weight * (more.astype(jnp.float32) - less.astype(jnp.float32))
        return CompressedMatrix(blended, _read(mix.mean))

    def target(self, matrix):
        """The stored matrix itself."""
        return matrix


def _patterns(matrix):
    return to_bits(matrix.astype(jnp.bfloat16))


def _read(cut):
    return BitsRead(16.0 - cut.astype(jnp.float32), jnp.full((), 16.0))


ONLY_CUT = Scheme(
    SchemeFacts(
        "only-cut", "high bits of every weight", "", lossless=True, knob_specs=(UNREAD_BITS,), has_draft=True, runs=True
    ),
    lambda knobs, dtype: uniform(16.0 - knobs["unread_bits"], 16.0, 16.0, 16.0),
    CutMatrix(),
)
