"""Single-cycle Huffman decoders: an associative memory (CAM) of codewords beside a column of the array, and what it costs.

Every cycle one window of L_max bits is compared with all 2^N codewords of an N-bit symbol at once, so the memory has 2^N
entries of L_max bits, and area grows accordingly: from one synthesised decoder, others follow in proportion to their bits.
A column has one such decoder for each coded group of bits (three 5-bit ones for float16), and puts out one weight per cycle.

Source: Huff-LLM, 3.1 and its figure of CAM overheads (growth with N), 3.2 (three decoders per column), 5.2 (areas).
Departs: the paper prints no law of area. Symbol and length beside each codeword and the bit register are taken to grow in
    proportion too, unless a part of the reference is named as fixed.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["ReferenceCam", "area_overhead", "cam_bits", "decoder_area"]


@flax.struct.dataclass
class ReferenceCam:
    """A decoder whose area is known, with its whole memory; leaves "*b"."""

    area_m2: Leaf  # > 0
    symbol_bits: Leaf  # N, >= 1
    max_code_bits: Leaf  # L_max, >= 1
    fixed_share: Leaf = 0.0  # of the area that does not grow with the memory (register, shifter), in [0, 1]


def cam_bits(symbol_bits: Number, max_code_bits: Number) -> Float[Array, "*b"]:
    """Bits that are compared per cycle: those of the 2^N codewords that a single-cycle match must cover, each of the longest.

    Args:
        symbol_bits: "*b", N >= 1, real.
        max_code_bits: "*b", L_max >= 1.
    """
    return jnp.exp2(as_float(symbol_bits)) * as_float(max_code_bits)


def decoder_area(reference: ReferenceCam, *, symbol_bits: Number, max_code_bits: Number) -> Float[Array, "*b"]:
    """Area of one decoder, scaled from a known one by the bits of its memory; the reference's own where sizes agree.

    Args:
        reference: leaves "*b".
        symbol_bits, max_code_bits: as of `cam_bits`.
    Returns:
        "*b", in m^2; doubles with every bit of the symbol, but for the fixed share.
    """
    growth = cam_bits(symbol_bits, max_code_bits) / cam_bits(reference.symbol_bits, reference.max_code_bits)
    fixed = as_float(reference.fixed_share)
    return as_float(reference.area_m2) * (fixed + (1.0 - fixed) * growth)


def area_overhead(
    decoder_area_m2: Number, *, rows: Number, columns: Number, pe_area_m2: Number, decoders_per_column: Number = 1.0
) -> Float[Array, "*b"]:
    """Area of the decoders of all columns over that of the array's elements (buffers not counted).

    Args:
        decoder_area_m2: "*b", > 0; of one decoder.
        rows, columns: "*b", >= 1; of the array. The columns cancel.
        pe_area_m2: "*b", > 0; of one processing element.
        decoders_per_column: "*b", >= 1.
    Returns:
        "*b", a fraction.
    Source: Huff-LLM, 5.2, which prints 6.13 % for 128 x 128 elements of 484 um^2 and a decoder of 1199.3 um^2; no formula.
    Departs: those areas give 1.94 % with one decoder per column and 5.81 % with three ("less than 6%" in its introduction);
        6.13 % follows from neither. It is not said whether the printed area is one 5-bit decoder or the module of three.
    """
    decoders = as_float(columns) * as_float(decoders_per_column) * as_float(decoder_area_m2)
    return jnp.asarray(decoders / (as_float(rows) * as_float(columns) * as_float(pe_area_m2)))
