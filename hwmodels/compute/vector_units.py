"""Vector units beside a matrix unit: converting quantized weights, and the softmax of attention.

A softmax row costs something by itself (handing it to a unit, its maximum and sum across the lanes, rescaling what was summed
up before), one row after the other; and then packets for each register of its scores, rows on several units at once.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 3.1.2, 5.1, 5.2.
Departs: the paper prints what the instructions do and a gather's latency, neither clock nor packets per register.
"""

from __future__ import annotations

from typing import Any

import flax.struct
from jaxtyping import Array, Float

from hwmodels.compute.exponentials import EXPONENTIALS
from hwmodels.compute.weight_layouts import LAYOUTS
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number, variant
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["VectorUnits", "dequantization_time", "softmax_time"]


@flax.struct.dataclass
class VectorUnits:
    """Vector units that share the work evenly. Every field is a leaf, "*b", or a tree of leaves."""

    units: Leaf = number(POSITIVE)  # that work at the same time, > 0
    packets_per_s: Leaf = number(POSITIVE)  # instruction packets that one of them issues in a second, > 0
    register_scores: Leaf = number(POSITIVE)  # 16-bit scores of a register, >= 1
    score_packets: Leaf = number(NOT_NEGATIVE)  # of a softmax per register, beside its exponentials, >= 0
    row_packets: Leaf = number(NOT_NEGATIVE)  # of a softmax per row, rows one after the other, >= 0
    layout: Any = variant(LAYOUTS)  # a hwmodels.compute.weight_layouts.WeightLayout
    exponential: Any = variant(EXPONENTIALS)  # a hwmodels.compute.exponentials.Exponential
    power_w: Leaf = number(
        NOT_NEGATIVE, default=None
    )  # of all units at work, >= 0; None: in the chip's energy per FLOP


def dequantization_time(
    vector: VectorUnits, weights: Number, *, weight_bits: Number, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds to convert quantized weights to what the matrix unit takes.

    Args:
        vector: leaves "*b".
        weights: "*b", >= 0.
        weight_bits: "*b", > 0; bits stored per weight, scales included.
        temperature: "*b", in [0, 1], of the bits of a code; 0 is exact.
    Gradient: right for every input; at temperature 0 the bits of a code are constant.
    Source: mobile NPU, 5.1, 5.2.2.
    """
    packets = vector.layout.packets(weights, weight_bits=weight_bits, temperature=temperature)
    return packets / (as_float(vector.units) * as_float(vector.packets_per_s))


def softmax_time(
    vector: VectorUnits, rows: Number, columns: Number, *, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Seconds of the softmax of one head: a row for each query, a column for each key that it sees.

    Args:
        vector: leaves "*b".
        rows, columns: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the number of registers and of rounds of rows; 0 is exact.
    Gradient: right for every input; at temperature 0 the two numbers are constants.
    Source: mobile NPU, 5.2.1: exponentials of all queries times all keys, a register of 64 of them at a time.
    """
    rounds = smooth_ceil_div(rows, vector.units, temperature)
    registers = smooth_ceil_div(columns, vector.register_scores, temperature)
    each = as_float(vector.score_packets) + vector.exponential.register_packets
    packets = as_float(rows) * as_float(vector.row_packets) + rounds * registers * each
    return packets / as_float(vector.packets_per_s)
