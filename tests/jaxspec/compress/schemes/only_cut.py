"""A scheme in one file, as an example of what it takes: the draft reads the high bits of every value; nothing is pruned.

Copied to `jaxspec/compress/schemes/` with one line in `jaxspec/settings/schemes.py` it is a scheme of the whole program.
"""

import dataclasses

import jax.numpy as jnp

from jaxspec.compress.cut import blend, soft_truncate
from jaxspec.compress.footprint import of_kv, of_weights, uniform
from jaxspec.compress.schemes.described import Described
from jaxspec.compress.schemes.interface import CompressedKV, CompressedLayer
from jaxspec.formats.patterns import BFLOAT16, from_bits, to_bits
from jaxspec.formats.truncation import high_part
from jaxspec.models.config import MATRIX_KINDS


@dataclasses.dataclass(frozen=True)
class OnlyCut(Described):
    """A scheme (see `Scheme`)."""

    def prepare(self, layer, channel_norms):
        """Stored patterns; calibration is not used."""
        del channel_norms
        return {kind: to_bits(layer[kind].astype(jnp.bfloat16)) for kind in MATRIX_KINDS}

    def hard(self, layer, prepared, knobs):
        """Whole cut bits."""
        del layer
        cut = jnp.round(knobs["weight_cut_bits"]).astype(jnp.int32)
        matrices = {k: from_bits(high_part(prepared[k], cut[i]), BFLOAT16) for i, k in enumerate(MATRIX_KINDS)}
        return CompressedLayer(matrices, _read(cut))

    def soft(self, layer, prepared, knobs, temperature):
        """Fractional cuts blend their neighbours."""
        del layer
        mixes = [blend(cut, temperature) for cut in knobs["weight_cut_bits"]]
        matrices = {k: soft_truncate(prepared[k], mix) for k, mix in zip(MATRIX_KINDS, mixes, strict=True)}
        return CompressedLayer(matrices, _read(jnp.stack([mix.cut_bits for mix in mixes])))

    def target(self, layer):
        """The stored layer itself."""
        return layer

    def prepare_kv(self, rows):
        """The cache is read as it is."""
        return rows

    def soft_kv(self, prepared, knobs, temperature):
        """The cache is read as it is."""
        del knobs, temperature
        return CompressedKV(prepared, of_kv(jnp.asarray(16.0), jnp.asarray(16.0)))

    def hard_kv(self, prepared, knobs):
        """The cache is read as it is."""
        return self.soft_kv(prepared, knobs, None)

    def encode_kv(self, rows, knobs):
        """The cache is read as it is."""
        del knobs
        return rows

    def expected_footprint(self, knobs):
        """Known without counting."""
        return uniform(16.0 - knobs["weight_cut_bits"], 16.0, 16.0, 16.0)


def _read(cut):
    draft = {kind: 16.0 - cut[i].astype(jnp.float32) for i, kind in enumerate(MATRIX_KINDS)}
    return of_weights(draft, {kind: jnp.full((), 16.0) for kind in MATRIX_KINDS})
