"""Cassandra-2: values in MX blocks of a shared exponent; the draft is a part of that target, which is altered a little.

All values of a row are in blocks, those that are pruned too: the target is then one network, whatever is pruned and cut.

Source: Cassandra, IV-B and Fig. 5(a); VII-A.3 (MXINT8).
Departs: in the paper pruned values stay in 16 bits ("without any further transformation", V-A), so that each choice of pruned
    values would be another target; see decision record 0007.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt16

from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.compress.schemes.nested import nested_scheme
from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.formats import mx_truncated
from jaxspec.formats.mx_truncated import SharedExponentTensor
from jaxspec.formats.patterns import BFLOAT16, BitsRead, NumberFormat, from_bits, to_bits
from jaxspec.settings.knobs import SharedExponents
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["CASSANDRA2", "CASSANDRA2_HEAD", "MXINT8", "BlockExponents"]


@dataclasses.dataclass(frozen=True)
class BlockExponents:
    """An `ExponentCoding`: one exponent for 32 consecutive values of a row.

    Attributes:
        form: width of elements, and rounding.
    """

    form: SharedExponents

    def number_format(self, dtype: Any) -> NumberFormat:
        """Elements stand for bfloat16 values."""
        del dtype
        return BFLOAT16

    def target(self, values: Float[Array, "*b column"]) -> Float[Array, "*b column"]:
        """Rounded to elements of their blocks, in bfloat16."""
        return mx_truncated.round_to(values.astype(jnp.bfloat16), self.form)

    def cut(
        self, bits: UInt16[Array, "*b column"], cut_bits: Int[Array, ""], number_format: NumberFormat
    ) -> UInt16[Array, "*b column"]:
        """Low bits of elements zeroed: small values of a block lose more of their own."""
        del number_format
        high = mx_truncated.split(self._elements(bits), cut_bits).speculation
        return to_bits(mx_truncated.decode(high))

    def count(
        self,
        bits: UInt16[Array, "row column"],
        kept: Float[Array, "row column"],
        number_format: NumberFormat,
        counted: Float[Array, "row 1"] | float,
    ) -> Float[Array, ""]:
        """Kept values."""
        del bits, number_format, counted
        return jnp.sum(kept)

    def bits_read(
        self,
        counts: Float[Array, ""],
        shape: tuple[Float[Array, ""] | int, int],
        cut_bits: Float[Array, ""],
        bitmap: Float[Array, ""],
        number_format: NumberFormat,
    ) -> BitsRead:
        """See `mx_truncated.nested_bits`."""
        del number_format
        return mx_truncated.nested_bits(
            counts / (shape[0] * shape[1]),
            cut_bits,
            bitmap=bitmap,
            columns=shape[1],
            mantissa_bits=self.form.mantissa_bits,
        )

    def _elements(self, bits: UInt16[Array, "*b column"]) -> SharedExponentTensor:
        return mx_truncated.encode(
            from_bits(bits, BFLOAT16), mantissa_bits=self.form.mantissa_bits, rounding=self.form.rounding
        )


def _scheme(name: str, **more: Any) -> Scheme:
    facts = SCHEME_FACTS[name]
    assert facts.shared_exponents is not None
    return nested_scheme(facts, BlockExponents(facts.shared_exponents), **more)


#: A sign and 8 bits of mantissa, cut toward zero.
CASSANDRA2 = _scheme("cassandra2")
#: The target's head stays as it is stored, so that both schemes have the same target: it is coded as Cassandra-1 codes it.
CASSANDRA2_HEAD = _scheme("cassandra2-head", head=CASSANDRA1)
#: A sign and 7 bits, rounded to nearest: MXINT8 without its code -128.
MXINT8 = _scheme("mxint8")
