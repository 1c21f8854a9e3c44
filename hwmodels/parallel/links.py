"""Links between processing elements, and from an external memory to all of them.

Source: ELMoE-3D, 4.1, 6 and Table 1: aggregation links carry activations and partial sums between elements, the streamline
brings weights of the external memory into each.
"""

from __future__ import annotations

import flax.struct

from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf

__all__ = ["ElementLinks"]


@flax.struct.dataclass
class ElementLinks:
    """Links of one processing element; all have the same. Every field is a leaf, "*b"."""

    aggregation_bytes_per_s: Leaf = number(POSITIVE)  # to and from other elements, > 0
    streamline_bytes_per_s: Leaf = number(POSITIVE)  # from memories that are not its own bank, > 0
    activation_bits: Leaf = number(POSITIVE, default=8.0)  # of an activation that is sent, > 0
    partial_sum_bits: Leaf = number(POSITIVE, default=32.0)  # of a sum that is sent, > 0
    energy_j_per_bit: Leaf = number(NOT_NEGATIVE, default=0.0)  # of the aggregation links, >= 0
