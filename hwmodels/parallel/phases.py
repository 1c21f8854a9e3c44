"""How a product is divided among processing elements: by columns of the weights, or by rows of the activations.

Tensor parallel: each element multiplies all m activations with its own columns, which lie in its bank. Data parallel: each
multiplies its own activations with all weights, which stream past.

Source: ELMoE-3D, 5.1: banks that are coupled to elements favour tensor parallelism, a shared interconnect data parallelism.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import flax.struct
from jaxtyping import Array, Float

from hwmodels.numerics.axes import as_arrays
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Number

__all__ = ["Division", "Phase", "divide"]

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
