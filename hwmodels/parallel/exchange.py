"""What elements tell each other about a product whose weights lie with several of them.

Part of the weights lies in the elements' own banks, each with columns of its own (tensor parallel: every element sees all
rows); part streams past all of them (data parallel: every element sees its own rows). One result needs both. Either weights of
the columns are sent to all elements, or each sends the sums of its columns to the element that has the row.

Source: ELMoE-3D, 5.2 and Fig. 10 (a), which draws both volumes and prints no formula.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.axes import same_rank
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.links import ElementLinks

__all__ = ["Exchange", "exposed_time", "slice_exchange", "sum_exchange"]


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


def slice_exchange(links: ElementLinks, k: Number, n: Number, *, slice_bits: Number, elements: Number) -> Exchange:
    """Exchange of weights: every element receives the slices of all columns that it does not have.

    Args:
        links: leaves "*b".
        k, n: "*b", > 0.
        slice_bits: "*b", > 0; bits sent per weight.
        elements: "*b", >= 1.
    """
    links, k, n, bits, count = same_rank(links, *map(as_float, (k, n, slice_bits, elements)))
    slices = k * n * bits / BITS_PER_BYTE
    return _exchange(links, slices * (count - 1.0) / count, count)


def exposed_time(exchange_s: Number, hiding_s: Number) -> Float[Array, "*b"]:
    """Seconds by which an exchange outlasts what it overlaps with, fetching and computing; "*b", >= 0.

    Gradient: a kink where both take equally long.
    """
    exchange, hiding = same_rank(as_float(exchange_s), as_float(hiding_s))
    longer = jnp.asarray(exchange - hiding)
    return jnp.where(longer > 0, longer, 0.0)


def _exchange(links: ElementLinks, received_bytes: Leaf, elements: Leaf) -> Exchange:
    received = jnp.asarray(received_bytes)
    return Exchange(received * elements, received / as_float(links.aggregation_bytes_per_s))
