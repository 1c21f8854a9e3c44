"""Vector units beside a matrix unit: converting quantized weights and taking exponentials, both by lookup.

* Weights: an instruction looks up 4-bit codes in a table of 16 values, a register of codes at a time (vlut16, one code per
  byte, so 128 weights in a 128-byte register); another one spreads the scales of their groups over the same weights, which
  are then multiplied and stored. Wider values take a lookup per 4 bits.
* Exponentials: of 16-bit values, gathered from a table on chip (vgather), a half-register at a time. A gather keeps its unit
  waiting for tens of instruction packets.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.1.2, 5.2.1, 5.2.2.
Departs: the paper prints what the instructions do and a gather's latency, neither clock nor packets per register.
"""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Float

from hwmodels.compute.weight_slices import METADATA_BITS, weight_slices
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["VectorUnits", "dequantization_time", "exponential_time"]


@flax.struct.dataclass
class VectorUnits:
    """Vector units that share the work evenly. Every field is a leaf, "*b"."""

    units: Leaf = number(POSITIVE)  # that work at the same time, > 0
    packets_per_s: Leaf = number(POSITIVE)  # instruction packets that one of them issues in a second, > 0
    register_weights: Leaf = number(POSITIVE)  # weights that one lookup converts, > 0
    lookup_packets: Leaf = number(POSITIVE)  # per register of weights and lookup: unpack the codes, look them up, > 0
    scale_packets: Leaf = number(NOT_NEGATIVE)  # per register of weights: spread the scales, multiply, store, >= 0
    gather_elements: Leaf = number(POSITIVE)  # exponentials of one gather, >= 1
    gather_packets: Leaf = number(POSITIVE)  # that a unit waits for a gather, > 0
    code_bits: Leaf = number(POSITIVE, default=4.0)  # of one lookup, > 0
    metadata_bits: Leaf = number(
        NOT_NEGATIVE, default=METADATA_BITS
    )  # stored bits per weight that may belong to no code, >= 0


def dequantization_time(
    vector: VectorUnits, weights: Number, *, weight_bits: Number, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds to convert quantized weights to what the matrix unit takes.

    Args:
        vector: leaves "*b".
        weights: "*b", >= 0; whole registers as a rule, parts of one count as parts.
        weight_bits: "*b", > 0; bits stored per weight, scales included: they decide on the number of lookups.
        temperature: "*b", in [0, 1], of the number of lookups; 0 is exact.
    Gradient: right for every input; at temperature 0 the number of lookups is a constant.
    Source: mobile NPU, 5.2.2.
    """
    lookups = weight_slices(weight_bits, vector.code_bits, metadata_bits=vector.metadata_bits, temperature=temperature)
    packets = lookups * as_float(vector.lookup_packets) + as_float(vector.scale_packets)
    return as_float(weights) / as_float(vector.register_weights) * packets / _packets_per_s(vector)


def exponential_time(vector: VectorUnits, count: Number, *, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Seconds to look up exponentials: queries times visible keys and values for the softmax of one head.

    Args:
        vector: leaves "*b".
        count: "*b", > 0; rows that follow each other on chip fill gathers together.
        temperature: "*b", in [0, 1], of the number of gathers; 0 is exact.
    Returns:
        "*b", s; never below count * gather_packets / (gather_elements * units * packets_per_s).
    Gradient: right for every input; at temperature 0 the number of gathers is a constant.
    Source: mobile NPU, 5.2.1: 64 exponentials of a gather, 24 to 48 packets for each, as many as queries times keys.
    """
    together = as_float(vector.gather_elements) * as_float(vector.units)
    rounds = smooth_ceil_div(count, together, temperature)
    return rounds * as_float(vector.gather_packets) / as_float(vector.packets_per_s)


def _packets_per_s(vector: VectorUnits) -> Leaf:
    return as_float(vector.units) * as_float(vector.packets_per_s)
