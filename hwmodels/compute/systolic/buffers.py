"""What a systolic array reads from and writes to its buffers: elements of a matrix product, then bytes.

The stationary operand is read once. What streams past is read once per fold of the other side of the array. Partial sums
leave the array once per fold of the summed dimension; from the second on they are read back and added to.

Source: Huff-LLM, appendix A.1, Eq. (4) and (5).
Departs: input stationary is commented out in the paper's source, and partial sums are not counted there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.systolic.array import SystolicArray
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.folds import as_whole, ceil_div, smooth_folds
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "PARTIAL_SUM_BITS",
    "BufferElements",
    "BufferTraffic",
    "buffer_elements",
    "buffer_traffic",
    "smooth_buffer_elements",
]

#: Width of a partial sum: Huff-LLM's commented-out description of its array adds FP16 products in FP32.
PARTIAL_SUM_BITS = 32.0


class BufferElements(NamedTuple):
    """Elements of the matrices that cross each buffer's port, "*b"."""

    input_reads: Any
    weight_reads: Any
    output_accesses: Any  # partial sums written and read back, outputs included


@flax.struct.dataclass
class BufferTraffic:
    """Bytes that cross each buffer's port, "*b"."""

    input_bytes: Float[Array, "*b"]
    weight_bytes: Float[Array, "*b"]
    output_bytes: Float[Array, "*b"]


def buffer_elements(array: SystolicArray, m: Number, k: Number, n: Number) -> BufferElements:
    """Exact element counts of an m x k by k x n product.

    Args:
        array: rows and columns "*b", whole.
        m, k, n: "*b", whole >= 1.
    Returns:
        "*b", on the host; Python integers where all are single numbers, else int64 (results stay below 2^63).
    Raises:
        ValueError: a number is traced, not whole, or below 1.
    Source: Huff-LLM, appendix A.1, Eq. (4) and (5).
    """
    rows, columns = as_whole(array.rows, "rows"), as_whole(array.columns, "columns")
    m, k, n = as_whole(m, "m"), as_whole(k, "k"), as_whole(n, "n")
    return _elements(array, m, k, n, rows, columns, ceil_div)


def smooth_buffer_elements(
    array: SystolicArray, m: Number, k: Number, n: Number, temperature: Number = 0.0
) -> BufferElements:
    """Element counts as `buffer_elements` gives them, but functions of real numbers that have a gradient.

    Args:
        array: leaves "*b".
        m, k, n: "*b", > 0, real.
        temperature: "*b", in [0, 1], of the folds.
    Returns:
        "*b", > 0; the exact counts at temperature 0, rounded to floating point.
    Gradient: by rows, columns, m, k and n; continuous at temperature > 0, with folds constant at 0.
    """

    def folds(extent: Number, tile: Number) -> Float[Array, "*b"]:
        return smooth_folds(extent, tile, temperature)

    m, k, n = as_float(m), as_float(k), as_float(n)
    counts = _elements(array, m, k, n, as_float(array.rows), as_float(array.columns), folds)
    return BufferElements(*(jnp.asarray(count) for count in counts))


def buffer_traffic(
    elements: BufferElements,
    *,
    input_bits: Number = UNCOMPRESSED_BITS,
    weight_bits: Number = UNCOMPRESSED_BITS,
    output_bits: Number = PARTIAL_SUM_BITS,
) -> BufferTraffic:
    """Bytes that element counts amount to at given widths.

    Args:
        elements: "*b".
        input_bits: "*b", >= 0; stored bits per input element.
        weight_bits: "*b", >= 0; stored bits per weight. Compressed weights are decoded between buffer and array, so that
            they are fewer bits here and change no cycle.
        output_bits: "*b", >= 0; bits per partial sum, outputs included.
    Returns:
        "*b"; floating point, so that counts above 2^24 are rounded in single precision.
    Source: Huff-LLM, 4 (savings are simulated by narrowing the weight buffer).
    """

    def traffic(count: Number, bits: Number) -> Float[Array, "*b"]:
        return jnp.asarray(as_float(count) * (as_float(bits) / BITS_PER_BYTE))

    return BufferTraffic(
        input_bytes=traffic(elements.input_reads, input_bits),
        weight_bytes=traffic(elements.weight_reads, weight_bits),
        output_bytes=traffic(elements.output_accesses, output_bits),
    )


def _elements(array: SystolicArray, m: Any, k: Any, n: Any, rows: Any, columns: Any, folds: Any) -> BufferElements:
    if array.dataflow == "os":
        # A sum stays until it is complete, so each output crosses once.
        return BufferElements(m * k * folds(n, columns), k * n * folds(m, rows), m * n)
    # Each fold over k writes every output, and all but the first read it before: one sum, 2 folds - 1 accesses.
    output_accesses = m * n * (2 * folds(k, rows) - 1)
    if array.dataflow == "ws":
        return BufferElements(m * k * folds(n, columns), k * n, output_accesses)
    return BufferElements(m * k, k * n * folds(m, columns), output_accesses)
