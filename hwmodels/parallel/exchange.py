"""What elements tell each other about a product whose weights lie with several of them.

Part of the weights lies in the elements' own banks, each with columns of its own (tensor parallel: every element sees all
rows); part streams past all of them (data parallel: every element sees its own rows). One result needs both: each sends
the sums of its columns to the element that has the row.

Source: ELMoE-3D, 5.2 and Fig. 10 (a), which draws the volume and prints no formula.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["ElementLinks", "Exchange", "sum_exchange"]


@flax.struct.dataclass
class ElementLinks:
    """Links of one processing element; all have the same. Every field is a leaf, "*b"."""

    aggregation_bytes_per_s: Leaf = number(POSITIVE)  # to and from other elements, > 0
    streamline_bytes_per_s: Leaf = number(POSITIVE)  # from memories that are not its own bank, > 0
    activation_bits: Leaf = number(POSITIVE, default=8.0)  # of an activation that is sent, > 0
    partial_sum_bits: Leaf = number(POSITIVE, default=32.0)  # of a sum that is sent, > 0
    energy_j_per_bit: Leaf = number(NOT_NEGATIVE, default=0.0)  # of the aggregation links, >= 0


@flax.struct.dataclass
class Exchange:
    """One product's exchange, leaves "*b"."""

    volume_bytes: Float[Array, "*b"]  # over all links together
    time_s: Float[Array, "*b"]  # of the busiest link; links work at the same time


def sum_exchange(links: ElementLinks, m: Number, k: Number, n: Number, *, elements: Number) -> Exchange:
    """Exchange of sums: activations go to every element, sums to the element that has the row.

    Args:
        links: leaves "*b".
        m, k, n: "*b", > 0; activations, inner size, columns. Rows and columns are spread evenly.
        elements: "*b", >= 1.
    """
    links, m, k, n, count = same_rank(links, *map(as_float, (m, k, n, elements)))
    activations = m * k * as_float(links.activation_bits) / BITS_PER_BYTE
    sums = m * n * as_float(links.partial_sum_bits) / BITS_PER_BYTE
    # Of an element's rows it has 1 / count itself, of a row's sums likewise.
    others = (count - 1.0) / count
    received = activations * others + sums / count * others
    return _exchange(links, received, count)


def _exchange(links: ElementLinks, received_bytes: Leaf, elements: Leaf) -> Exchange:
    received = jnp.asarray(received_bytes)
    return Exchange(received * elements, received / as_float(links.aggregation_bytes_per_s))
