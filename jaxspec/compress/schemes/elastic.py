"""INT8 weights in groups of 32 whose upper bits are a draft: nested in the target, with the missing lower bits augmented.

The target is the INT8 network. A draft step reads the most significant bits of each weight and the scales; verification reads
the rest as well. Which experts a draft step chooses among is the second axis (`jaxspec.compress.expert_pool`). Keys and values
are the target's own, in 16 bits.

Source: ELMoE-3D (arXiv:2604.14626), 3.3 and 4.3, where the draft reads 4 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.blending import blend
from jaxspec.compress.footprint import uniform
from jaxspec.compress.rematerialised import made_in_blocks
from jaxspec.compress.schemes.scheme import KV_BITS, CompressedMatrix, OwnKnobs, Scheme
from jaxspec.formats import bit_slices
from jaxspec.formats.bit_slices import GROUP_SIZE, WEIGHT_BITS, Int8Groups, Reading, of_rows
from jaxspec.formats.group_quantization import SCALE_BITS
from jaxspec.formats.patterns import BitsRead
from jaxspec.settings.knobs import SLICE_BITS, StoredDtype
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["ANY_PRECISION", "BIT_SLICES", "ELASTIC", "SlicedMatrix"]


@dataclasses.dataclass(frozen=True)
class SlicedMatrix:
    """A `MatrixCodec`.

    Attributes:
        reading: what the draft takes the most significant bits for.
    """

    reading: Reading = "augmentation"

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> None:
        """Nothing: no weight is ranked."""
        del matrix, channel_norm

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """The INT8 matrix, in float32: what is stored is rounded once, and rounding it again changes nothing."""
        return bit_slices.decode(of_rows(matrix))[..., : matrix.shape[-1]]

    def hard(self, matrix: Float[Array, "row column"], prepared: None, knobs: OwnKnobs) -> CompressedMatrix:
        """A whole number of bits (rounded here)."""
        del prepared
        bits = jnp.round(knobs["slice_bits"])

        def make(rows: Array) -> tuple[Array, tuple[()]]:
            return self._read(of_rows(rows), bits.astype(jnp.int32), rows.shape[-1]), ()

        values, _ = made_in_blocks(make, matrix)
        return CompressedMatrix(values, _bits(bits, matrix.shape[-1]))

    def soft(
        self, matrix: Float[Array, "row column"], prepared: None, knobs: OwnKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedMatrix:
        """Drafts of the neighbouring whole numbers of bits, blended."""
        del prepared
        mix = blend(knobs["slice_bits"], temperature, least=int(SLICE_BITS.low), most=int(SLICE_BITS.high))

        def make(rows: Array) -> tuple[Array, tuple[()]]:
            groups, columns = of_rows(rows), rows.shape[-1]
            low, high = (self._read(groups, bits, columns).astype(mix.weight.dtype) for bits in (mix.low, mix.low + 1))
            return low + mix.weight * (high - low), ()

        values, _ = made_in_blocks(make, matrix)
        return CompressedMatrix(values, _bits(mix.mean, matrix.shape[-1]))

    def _read(self, groups: Int8Groups, bits: Array, columns: int) -> Float[Array, "row column"]:
        return bit_slices.decode_draft(groups, self.reading, draft_bits=bits)[..., :columns]


def _footprint(knobs: Mapping[str, float], dtype: StoredDtype) -> Footprint:
    """Known without counting; rows are whole groups. The pool of experts changes what is read, not its width."""
    del dtype
    bits = bit_slices.expected_bits(1.0, knobs["slice_bits"])
    return uniform(float(bits.draft), float(bits.target), KV_BITS, KV_BITS)


def _bits(slice_bits: Float[Array, ""], columns: int) -> BitsRead:
    """Bits per weight with the scales, one for each begun group of a row."""
    scales = SCALE_BITS * -(-columns // GROUP_SIZE) / columns
    return BitsRead(slice_bits + scales, jnp.full_like(slice_bits, WEIGHT_BITS + scales))


#: Missing bits augmented; routers choose among a pool.
ELASTIC = Scheme(SCHEME_FACTS["elastic"], _footprint, SlicedMatrix())
#: Missing bits augmented; routers choose among all experts.
BIT_SLICES = Scheme(SCHEME_FACTS["bit-slices"], _footprint, SlicedMatrix())
#: The upper bits are an integer of their own, as in Park et al. 2024, arXiv:2402.10517, where they are deployed alone.
ANY_PRECISION = Scheme(SCHEME_FACTS["any-precision"], _footprint, SlicedMatrix("truncation"))
