"""What elements tell each other about a product whose weights lie with several of them.

Part of the weights lies in the elements' own banks, each with columns of its own (tensor parallel: every element sees all
rows); part streams past all of them (data parallel: every element sees its own rows). One result needs both: each sends
the sums of its columns to the element that has the row.

Source: ELMoE-3D, 5.2 and Fig. 10 (a), which draws the volume and prints no formula.

How a product is divided among processing elements: by columns of the weights, or by rows of the activations.

Tensor parallel: each element multiplies all m activations with its own columns, which lie in its bank. Data parallel: each
multiplies its own activations with all weights, which stream past.

Source: ELMoE-3D, 5.1: banks that are coupled to elements favour tensor parallelism, a shared interconnect data parallelism.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.axes import as_arrays, same_rank
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "Division",
    "ElementLinks",
    "Exchange",
    "Phase",
    "divide",
    "sum_exchange",
]


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


#: What is divided: the columns, or the rows.
Phase: TypeAlias = Literal["tensor", "data"]


@flax.struct.dataclass
class Division:
    """One product in parts; leaves "*b"."""

    passes: Float[Array, "*b"]  # that the fullest element makes over the blocks it multiplies
    blocks: Float[Array, "*b"]  # of weights that it multiplies in each pass
    active_share: Float[Array, "*b"]  # of the elements, on average over the product's time, in (0, 1]


def divide(
    phase: Phase, m: Number, blocks: Number, *, elements: Number, reuse: Number, temperature: Number = 0.0
) -> Division:
    """Divide a product.

    Args:
        phase: static.
        m: "*b", > 0; activations.
        blocks: "*b", > 0; blocks of weights.
        elements: "*b", >= 1.
        reuse: "*b", >= 1; activations that a block is multiplied with in one pass.
        temperature: "*b", in [0, 1], of all counts; 0 is exact.
    Raises:
        ValueError: another phase.
    Gradient: as `smooth_ceil_div`.
    """
    m, blocks, count = as_arrays(m, blocks, elements)
    if phase == "tensor":
        rounds = smooth_ceil_div(blocks, count, temperature)
        return Division(smooth_ceil_div(m, reuse, temperature), rounds, blocks / rounds / count)
    if phase == "data":
        rows = smooth_ceil_div(m, count, temperature)
        return Division(smooth_ceil_div(rows, reuse, temperature), blocks, m / rows / count)
    raise ValueError(f"phase is {phase!r}; allowed are 'tensor' and 'data'")
