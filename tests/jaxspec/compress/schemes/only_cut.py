"""A scheme in one file, as an example of what it takes: the draft reads the high bits of every value; nothing is pruned.

Copied to `jaxspec/compress/schemes/` with one line in `jaxspec/settings/schemes.py` it is a scheme of the whole program.
"""

import dataclasses

import jax.numpy as jnp

from jaxspec.compress.cut import blend_cuts, soft_truncate
from jaxspec.compress.footprint import BitsPerValue, uniform
from jaxspec.compress.schemes.described import Described
from jaxspec.compress.schemes.interface import CompressedKV, CompressedMatrix
from jaxspec.formats.patterns import BFLOAT16, from_bits, to_bits
from jaxspec.formats.truncation import high_part


@dataclasses.dataclass(frozen=True)
class OnlyCut(Described):
    """A scheme (see `Scheme`)."""

    def prepare(self, matrix, channel_norm):
        """Nothing; calibration is not used."""
        del matrix, channel_norm

    def hard(self, matrix, prepared, knobs):
        """Whole cut bits."""
        del prepared
        cut = jnp.round(knobs["weight_cut_bits"]).astype(jnp.int32)
        values = from_bits(high_part(_patterns(matrix), cut), BFLOAT16)
        return CompressedMatrix(values, _read(cut))

    def soft(self, matrix, prepared, knobs, temperature):
        """Fractional cuts blend their neighbours."""
        del prepared
        mix = blend_cuts(knobs["weight_cut_bits"], temperature)
        return CompressedMatrix(soft_truncate(_patterns(matrix), mix), _read(mix.mean))

    def target(self, matrix):
        """The stored matrix itself."""
        return matrix

    def prepare_kv(self, rows):
        """The cache is read as it is."""
        return rows

    def soft_kv(self, prepared, knobs, temperature, counted=None):
        """The cache is read as it is."""
        del knobs, temperature, counted
        return CompressedKV(prepared, BitsPerValue(jnp.asarray(16.0), jnp.asarray(16.0)))

    def hard_kv(self, prepared, knobs, counted=None):
        """The cache is read as it is."""
        return self.soft_kv(prepared, knobs, None, counted)

    def encode_kv(self, rows, knobs):
        """The cache is read as it is."""
        del knobs
        return rows

    def expected_footprint(self, knobs):
        """Known without counting."""
        return uniform(16.0 - knobs["weight_cut_bits"], 16.0, 16.0, 16.0)


def _patterns(matrix):
    return to_bits(matrix.astype(jnp.bfloat16))


def _read(cut):
    return BitsPerValue(16.0 - cut.astype(jnp.float32), jnp.full((), 16.0))
