"""A systolic array and the cycles of a matrix product on it: M x K inputs by K x N weights, fold by fold.

Where the cycles of a fold come from. Operands enter skewed: row i one cycle after row i - 1, and each value moves one
processing element per cycle. So element (i, j) handles step t of T in cycle t + i + j, and the last of the R x C elements
is done after T + R + C - 2 cycles: the *stream*. Idle rows and columns pass data on, so the whole array counts whatever the
fold uses of it. To this come R cycles that make Eq. (3)'s 2R (3R on a square array, with its C):

* weight and input stationary: the stationary operand is shifted in from the top, a row per cycle, before the stream;
* output stationary: nothing is loaded, but the finished sums are shifted out at the bottom, a row per cycle, after it.

Conventions, static in the array, the first is the default: arrays that are built have a second register per element, and begin
the next stream behind the last (Jouppi et al. 2017, arXiv:1704.04760, 2: a second tile of weights hides the cycles of shifting
one in).

* "pipelined": the second register changes over with the wave itself, so streams follow each other without a gap, every
  max(T, R) cycles: a load takes R cycles even where the stream is shorter, as it is in decoding.
* "double_buffered": a second register per element loads the next fold (drains the last one) during the current stream.
  R cycles are left over once, at the start (end). Streams still wait for each other.
* "huffllm": load or drain, then stream, never overlapped: Eq. (3) as printed, for every dataflow.
* "scale_sim": what SCALE-Sim prints. As above, but output-stationary sums leave from where they are, without a drain; and one
  is missing from the total, not from each fold, as the tool prints the last cycle's index, counted from 0.

Source: Huff-LLM, appendix A.1, Eq. (2), (3) and the mapping table; SCALE-Sim 3.0.0 as run.
Departs: input stationary is commented out in the paper's source; the first two conventions are not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.numerics.fields import BYTE_RATE, FREQUENCY, NOT_NEGATIVE, POSITIVE, choice, number, part
from hwmodels.numerics.folds import Whole, as_whole, ceil_div, smooth_folds
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank
from hwmodels.numerics.smoothing import smooth_largest

__all__ = [
    "CONVENTIONS",
    "DATAFLOWS",
    "PARTIAL_SUM_BITS",
    "BufferElements",
    "Mapping",
    "OnChipBuffer",
    "SystolicArray",
    "buffer_elements",
    "cycles",
    "elapsed_cycles",
    "mapping",
    "smooth_buffer_elements",
    "smooth_cycles",
]

#: Which operand stays in the array: weights, outputs or inputs.
DATAFLOWS = ("ws", "os", "is")

#: How loads, streams and drains of successive folds are counted.
CONVENTIONS = ("pipelined", "double_buffered", "huffllm", "scale_sim")


@flax.struct.dataclass
class OnChipBuffer:
    """A memory beside the array. Every field is a leaf, "*b"."""

    bandwidth_bytes_per_s: Leaf = number(BYTE_RATE)  # reads and writes together, > 0
    access_bytes: Leaf = number(POSITIVE)  # width of one access, > 0; traffic is counted in fractions of it
    access_energy_j: Leaf = number(NOT_NEGATIVE)  # of one access, read or write, >= 0
    #: > 0; no time depends on it, area and power do. None: two folds of 16-bit operands, so that one loads while one is used.
    capacity_bytes: Leaf = number(POSITIVE, default=None)


@flax.struct.dataclass
class SystolicArray:
    """A grid of multiply-accumulate elements with its three buffers; leaves "*b".

    Raises:
        ValueError: `dataflow` is not in `DATAFLOWS` or `convention` not in `CONVENTIONS`.
    """

    rows: Leaf = number(POSITIVE)  # >= 1; a real number to the smooth functions
    columns: Leaf = number(POSITIVE)  # >= 1, likewise
    frequency_hz: Leaf = number(FREQUENCY)  # > 0
    mac_energy_j: Leaf = number(NOT_NEGATIVE)  # of one multiply-accumulate, >= 0
    input_buffer: OnChipBuffer = part(OnChipBuffer)
    weight_buffer: OnChipBuffer = part(OnChipBuffer)
    output_buffer: OnChipBuffer = part(OnChipBuffer)  # holds partial sums between folds
    dataflow: str = choice(*DATAFLOWS)
    convention: str = choice(*CONVENTIONS)

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("dataflow", self.dataflow, DATAFLOWS),
            ("convention", self.convention, CONVENTIONS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} {value!r} is unknown; choose one of {', '.join(allowed)}")

    @property
    def elements(self) -> Leaf:
        """Multiply-accumulate elements, "*b": what `Chip.element_area_m2` is the area of one of."""
        return as_float(self.rows) * as_float(self.columns)

    @property
    def peak_flops_per_s(self) -> Leaf:
        """Rate with all elements busy, "*b"; a multiply-add counts 2."""
        return 2.0 * self.elements * as_float(self.frequency_hz)


class Mapping(NamedTuple):
    """How a matrix product lies on the array; each field is as m, k and n were given."""

    row_extent: Any  # elements over the array's rows (S_R in the paper)
    column_extent: Any  # elements over its columns (S_C)
    steps: Any  # elements that stream through in time (T)


def mapping(array: SystolicArray, m: Number, k: Number, n: Number) -> Mapping:
    """Which dimension of an m x k by k x n product lies over rows, over columns and in time.

    Source: Huff-LLM, appendix A.1, mapping table; input stationary from its commented-out row.
    """
    if array.dataflow == "ws":
        return Mapping(row_extent=k, column_extent=n, steps=m)
    if array.dataflow == "os":
        return Mapping(row_extent=m, column_extent=n, steps=k)
    return Mapping(row_extent=k, column_extent=m, steps=n)


def cycles(array: SystolicArray, m: Number, k: Number, n: Number) -> Whole:
    """Exact cycles of an m x k by k x n product, as the array's convention prints them.

    Args:
        array: rows and columns "*b", whole.
        m, k, n: "*b", whole >= 1; in a language model m is tokens, k and n are a weight matrix's sides.
    Returns:
        "*b", on the host; a Python integer where all are single numbers, else int64 (results stay below 2^63).
    Raises:
        ValueError: a number is traced, not whole, or below 1.
    Source: Huff-LLM, appendix A.1, Eq. (2) and (3); SCALE-Sim 3.0.0.
    """
    rows, columns = as_whole(array.rows, "rows"), as_whole(array.columns, "columns")
    shape = mapping(array, as_whole(m, "m"), as_whole(k, "k"), as_whole(n, "n"))
    folds = ceil_div(shape.row_extent, rows) * ceil_div(shape.column_extent, columns)
    return _elapsed(array, rows, columns, shape.steps, folds, _exact_longest) - _not_printed(array)


def smooth_cycles(
    array: SystolicArray, m: Number, k: Number, n: Number, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Cycles as `cycles` counts them, but a function of real numbers that has a gradient.

    Args:
        array: leaves "*b".
        m, k, n: "*b", > 0, real.
        temperature: "*b", in [0, 1]; of the folds (`smooth_folds`) and the pipelined maximum (`smooth_maximum`).
    Returns:
        "*b", increasing in m, k and n; tends to the exact count as the temperature falls to 0, where it is equal to it,
        rounded to floating point (whole numbers below 2^24 are exact in single precision).
    Gradient: by rows, columns, m, k and n; continuous at temperature > 0. At temperature 0 the numbers of folds are
        constants, and the pipelined maximum has a kink where steps = rows.
    """
    return elapsed_cycles(array, m, k, n, temperature) - _not_printed(array)


def elapsed_cycles(
    array: SystolicArray, m: Number, k: Number, n: Number, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Cycles that pass, smooth like `smooth_cycles`: one more than printed where the convention is SCALE-Sim's.

    Time counts these: what is printed may be 0, and less than the multiplications need.
    """
    array, m, k, n, temperature = same_rank(array, m, k, n, temperature)
    rows, columns = as_float(array.rows), as_float(array.columns)
    shape = mapping(array, as_float(m), as_float(k), as_float(n))
    row_folds = smooth_folds(shape.row_extent, rows, temperature)
    column_folds = smooth_folds(shape.column_extent, columns, temperature)

    def longest(one: Leaf, other: Leaf) -> Leaf:
        return smooth_largest(one, other, temperature=temperature)

    return jnp.asarray(_elapsed(array, rows, columns, shape.steps, row_folds * column_folds, longest))


def _elapsed(
    array: SystolicArray, rows: Any, columns: Any, steps: Any, folds: Any, longest: Callable[[Any, Any], Any]
) -> Any:
    """Cycles that pass; the same formula for exact integers and for floats."""
    stream = steps + rows + columns - 2
    if array.convention == "scale_sim":
        return folds * (stream if array.dataflow == "os" else rows + stream)
    if array.convention == "huffllm":
        return folds * (rows + stream)
    if array.convention == "double_buffered":
        return rows + folds * stream
    return rows + (folds - 1) * longest(steps, rows) + stream


def _not_printed(array: SystolicArray) -> int:
    return 1 if array.convention == "scale_sim" else 0


def _exact_longest(one: Whole, other: Whole) -> Whole:
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return np.maximum(one, other)


# What a systolic array reads from and writes to its buffers: elements of a matrix product, then bytes.

#: Width of a partial sum: Huff-LLM's commented-out description of its array adds FP16 products in FP32.
PARTIAL_SUM_BITS = 32.0


class BufferElements(NamedTuple):
    """Elements of the matrices that cross each buffer's port, "*b"."""

    input_reads: Any
    weight_reads: Any
    output_accesses: Any  # partial sums written and read back, outputs included


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


def _elements(array: SystolicArray, m: Any, k: Any, n: Any, rows: Any, columns: Any, folds: Any) -> BufferElements:
    if array.dataflow == "os":
        # A sum stays until it is complete, so each output crosses once.
        return BufferElements(m * k * folds(n, columns), k * n * folds(m, rows), m * n)
    # Each fold over k writes every output, and all but the first read it before: one sum, 2 folds - 1 accesses.
    output_accesses = m * n * (2 * folds(k, rows) - 1)
    if array.dataflow == "ws":
        return BufferElements(m * k * folds(n, columns), k * n, output_accesses)
    return BufferElements(m * k, k * n * folds(m, columns), output_accesses)
