"""What one mapping of a product onto a vector array takes: time, traffic, energy, exactly, on the host.

A product is cut into tiles of m x k x n that fit the PEs' buffers, and three loops walk over the tiles. Each operand has one
tile on chip. It is fetched when it changes, so a loop over which an operand does not depend costs a fetch of the whole
operand each time round, unless all loops inside it leave the operand alone as well. Partial sums that come back are read and
written once more. Inputs or outputs may be kept in the global buffer if they fit as a whole; DRAM then sees them once.

Source: Huff-LLM, section 4 and 2.2 (local weight stationary).

The buffers of a vector array, and how its weights come in.

Weights enter the grid through its *weight lanes*, a weight each per cycle, and stay in a PE's registers while its rows of
inputs pass ("local weight stationary"). Where a decoder sits between weight memory and multipliers there is one per lane.

Source: Huff-LLM, 2.2 and the table Simba_specs.
Departs: the paper prints neither the global buffer nor how PEs are fed; both are arguments here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.vector_array import DIMENSIONS, SPREADS, VectorArray
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import as_whole
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "HELD",
    "ORDERS",
    "PARTIAL_SUM_BITS",
    "AccessEnergies",
    "BufferedArray",
    "Grid",
    "Mapping",
    "MappingCost",
    "OperandTraffic",
    "dram_time",
    "exact_ceil",
    "fits",
    "held_bytes",
    "operand_traffic",
    "priced",
    "search",
    "tiles_fit",
    "weight_load_time",
]


@flax.struct.dataclass
class BufferedArray(VectorArray):
    """A vector array with buffers in every PE and a global one. Every field is a leaf, "*b"."""

    weight_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    input_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    accumulator_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    global_buffer_bytes: Leaf = number(NOT_NEGATIVE)  # shared, for inputs and partial sums, >= 0
    weight_lanes: Leaf = number(POSITIVE)  # weights that enter the grid in a cycle, > 0


def weight_load_time(array: BufferedArray, k: Number, n: Number) -> Float[Array, "*b"]:
    """Seconds in which all weights of a k x n matrix enter the grid once, through all its lanes, "*b"."""
    return jnp.asarray(as_float(k) * as_float(n) / (as_float(array.weight_lanes) * as_float(array.frequency_hz)))


#: Width of a partial sum in accumulators and wherever it is spilled.
PARTIAL_SUM_BITS = 32.0


@flax.struct.dataclass
class AccessEnergies:
    """Energy of elementary acts; leaves "*b"."""

    dram_j_per_bit: Leaf
    buffer_j_per_bit: Leaf  # of a PE's buffers and the global one, read or written
    mac_j: Leaf


class Mapping(NamedTuple):
    """How a product is cut and walked through."""

    rows: str  # dimension along the grid's rows
    columns: str
    tile: tuple[int, int, int]  # m, k, n
    order: str  # of the loops, the outermost first
    held: tuple[bool, bool]  # inputs, outputs kept in the global buffer


class MappingCost(NamedTuple):
    """What a mapping takes; float64 on the host, arrays under JAX."""

    total_s: Any  # the slower of computing and DRAM
    compute_s: Any
    dram_s: Any
    dram_weight_bits: Any
    dram_activation_bits: Any  # inputs, outputs and spilled partial sums
    buffer_bits: Any  # read and written in all buffers on chip
    weights_read: Any  # from weight buffers: what a decoder behind them has to deliver
    total_j: Any


def fits(
    array: BufferedArray, mapping: Mapping, m: int, k: int, n: int, *, weight_bits: float = UNCOMPRESSED_BITS
) -> bool:
    """Whether a mapping's tiles fit the PEs' buffers, and what it holds the global one."""
    tile = tuple(np.float64(t) for t in mapping.tile)
    pe_fits = tiles_fit(array, mapping.rows, mapping.columns, tile, float(weight_bits))
    return bool(pe_fits) and bool(held_bytes(mapping.held, m, k, n) <= array.global_buffer_bytes)


def exact_ceil(a: Any, b: Any) -> Any:
    """ceil(a / b) of whole numbers below 2^26 in float64: the quotient of no others rounds to a whole number."""
    return np.ceil(a / b)


def _pes_along(array: BufferedArray, rows: str, columns: str) -> list[Any]:
    """PEs along each dimension."""
    one = lambda d: (
        (as_float(array.pe_rows) if rows == d else 1.0) * (as_float(array.pe_columns) if columns == d else 1.0)
    )
    return [one(d) for d in DIMENSIONS]


def tiles_fit(array: BufferedArray, rows: str, columns: str, tile: Sequence[Any], weight_bits: float) -> Any:
    """Whether a tile of each operand fits the PEs' buffers."""
    m, k, n = (exact_ceil(t, pes) for t, pes in zip(tile, _pes_along(array, rows, columns), strict=True))
    return (
        (k * n * weight_bits <= array.weight_buffer_bytes * BITS_PER_BYTE)
        & (m * k * UNCOMPRESSED_BITS <= array.input_buffer_bytes * BITS_PER_BYTE)
        & (m * n * PARTIAL_SUM_BITS <= array.accumulator_buffer_bytes * BITS_PER_BYTE)
    )


def held_bytes(held: tuple[bool, bool], m: Any, k: Any, n: Any) -> Any:
    """Bytes of what the global buffer keeps as a whole."""
    return (held[0] * m * k * UNCOMPRESSED_BITS + held[1] * m * n * PARTIAL_SUM_BITS) / BITS_PER_BYTE


class Grid:
    """What does not depend on the loops' order."""

    def __init__(self, array: BufferedArray, spread: tuple[str, str], sizes: Any, tile: Any, ceil: Any) -> None:
        self.array, self.sizes, self.tile = array, sizes, tile
        self.pes = _pes_along(array, *spread)
        self.trips = [ceil(size, t) for size, t in zip(sizes, tile, strict=True)]
        steps = (1.0, as_float(array.vector_width), as_float(array.vector_macs))
        cycles = 1.0
        for size, t, pes, step in zip(sizes, tile, self.pes, steps, strict=True):
            full = ceil(size, t) - 1.0  # all tiles but the last
            cycles = cycles * (full * ceil(t, pes * step) + ceil(size - full * t, pes * step))
        self.compute_s = cycles / as_float(array.frequency_hz)


class OperandTraffic(NamedTuple):
    """What each operand moves, elements, and the bits that DRAM sees."""

    weights: Any  # fetched, elements
    inputs: Any  # fetched, elements
    back: Any  # partial sums that come back: written and read once more than needed
    dram_weight_bits: Any
    dram_activation_bits: Any


def operand_traffic(grid: Grid, order: str, held: tuple[bool, bool], weight_bits: Any, where: Any) -> OperandTraffic:
    """Fetches of each operand under an order of the loops."""
    m, k, n = grid.sizes
    place = [order.index(d) for d in DIMENSIONS]

    def rounds(free: int) -> Any:
        """How often an operand that does not depend on one dimension is fetched as a whole."""
        inside = [grid.trips[d] > 1.0 for d in range(3) if d != free and place[d] > place[free]]
        if not inside:
            return 1.0
        changes = inside[0] | inside[1] if len(inside) == 2 else inside[0]
        return where(changes, grid.trips[free], 1.0)

    weights, inputs, back = k * n * rounds(0), m * k * rounds(2), m * n * (rounds(1) - 1.0)
    fetched = m * k if held[0] else inputs
    spilled = 0.0 if held[1] else 2.0 * back * PARTIAL_SUM_BITS
    return OperandTraffic(weights, inputs, back, weights * weight_bits, (fetched + m * n) * UNCOMPRESSED_BITS + spilled)


def dram_time(traffic: OperandTraffic, bandwidth: Any) -> Any:
    """Seconds of the DRAM's traffic."""
    return (traffic.dram_weight_bits + traffic.dram_activation_bits) / (BITS_PER_BYTE * bandwidth)


def priced(
    grid: Grid, traffic: OperandTraffic, held: tuple[bool, bool], energies: AccessEnergies, weight_bits: Any, times: Any
) -> MappingCost:
    """Cost of a mapping whose times are known."""
    array, pes = grid.array, grid.pes
    m, k, n = grid.sizes
    macs, weights_read = m * k * n, k * n * grid.trips[0]
    global_bits = (m * k + traffic.inputs) * UNCOMPRESSED_BITS if held[0] else 0.0
    if held[1]:
        global_bits = global_bits + 2.0 * (traffic.back * PARTIAL_SUM_BITS + m * n * UNCOMPRESSED_BITS)
    # Weights are copied to the PEs along m, inputs to those along n; sums are added up over the PEs along k.
    crossing = (pes[1] - 1.0) * (m * n + traffic.back)
    pe_bits = (
        (traffic.weights + weights_read) * pes[0] * weight_bits
        + (traffic.inputs * pes[2] + macs / as_float(array.vector_macs)) * UNCOMPRESSED_BITS
        + 2.0 * (macs / as_float(array.vector_width) + traffic.back + crossing) * PARTIAL_SUM_BITS
    )
    dram_bits, buffer_bits = traffic.dram_weight_bits + traffic.dram_activation_bits, global_bits + pe_bits
    total_j = (
        dram_bits * as_float(energies.dram_j_per_bit)
        + buffer_bits * as_float(energies.buffer_j_per_bit)
        + macs * as_float(energies.mac_j)
    )
    total_s, compute_s, dram_s = times
    return MappingCost(
        total_s=total_s,
        compute_s=compute_s,
        dram_s=dram_s,
        dram_weight_bits=traffic.dram_weight_bits,
        dram_activation_bits=traffic.dram_activation_bits,
        buffer_bits=buffer_bits,
        weights_read=weights_read,
        total_j=total_j,
    )


#: Orders of the loops over tiles, the outermost first.
ORDERS = tuple("".join(order) for order in itertools.permutations(DIMENSIONS))

#: What the global buffer keeps as a whole: (inputs, outputs).
HELD = ((False, False), (True, False), (False, True), (True, True))

#: Into how many equal parts a dimension may be cut.
_PARTS = tuple(sorted({i * 2**j for i in (1, 3) for j in range(15)} | {5, 7, 10}))


def search(
    array: BufferedArray,
    m: int,
    k: int,
    n: int,
    *,
    bandwidth_bytes_per_s: float,
    energies: AccessEnergies,
    weight_bits: float = UNCOMPRESSED_BITS,
) -> tuple[Mapping, MappingCost]:
    """The fastest mapping of a product, and of equally fast ones the cheapest.

    Args:
        array: single numbers; grid and vectors whole.
        m, k, n: whole, >= 1.
        bandwidth_bytes_per_s: > 0; of the DRAM.
        energies: single numbers.
        weight_bits: > 0; stored bits per weight, in DRAM and in weight buffers alike.
    Returns:
        the mapping and its cost, exact counts on the host.
    Raises:
        ValueError: a size is not whole, or a buffer too small for any tile.
    """
    sizes = tuple(np.float64(as_whole(size, name)) for size, name in zip((m, k, n), DIMENSIONS, strict=True))
    tiles = [t.ravel() for t in np.meshgrid(*(_tile_sizes(int(size)) for size in sizes), indexing="ij")]
    best = None
    for spread in SPREADS:
        fitting = tiles_fit(array, *spread, tuple(tiles), float(weight_bits))
        if not np.any(fitting):
            continue
        grid = Grid(array, spread, sizes, tuple(t[fitting] for t in tiles), exact_ceil)
        for order, held in itertools.product(ORDERS, HELD):
            if held_bytes(held, *sizes) > array.global_buffer_bytes:
                continue
            traffic = operand_traffic(grid, order, held, float(weight_bits), np.where)
            dram_s = dram_time(traffic, float(bandwidth_bytes_per_s))
            times = np.broadcast_arrays(np.maximum(grid.compute_s, dram_s), grid.compute_s, dram_s)
            # Energy is needed of the fastest only.
            fastest = _least(times[0], np.arange(times[0].size))
            if best is not None and times[0][fastest[0]] > best[1].total_s * (1 + _EQUAL):
                continue
            few = Grid(array, spread, sizes, tuple(t[fastest] for t in grid.tile), exact_ceil)
            traffic = operand_traffic(few, order, held, float(weight_bits), np.where)
            costs = priced(few, traffic, held, energies, float(weight_bits), [t[fastest] for t in times])
            cost = MappingCost(*np.broadcast_arrays(*costs))
            i = _first(cost)
            mapping_cost = MappingCost(*(float(value[i]) for value in cost))
            if best is None or _first(MappingCost(*np.array([best[1], mapping_cost]).T)) == 1:
                tile = int(few.tile[0][i]), int(few.tile[1][i]), int(few.tile[2][i])
                best = Mapping(*spread, tile, order, held), mapping_cost
    if best is None:
        raise ValueError(f"no tile of a {m} x {k} by {k} x {n} product fits the buffers of a PE; enlarge the smallest")
    return best


#: Rounding must not decide which of two equals is the better.
_EQUAL = 1e-9


def _least(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    return among[values[among] <= np.min(values[among]) * (1 + _EQUAL)]


def _first(cost: MappingCost) -> int:
    """The fastest; of these the cheapest; of these the one that computes least, which wastes fewest multipliers."""
    left = np.arange(cost.total_s.size)
    for values in (cost.total_s, cost.total_j, cost.compute_s):
        left = _least(values, left)
    return int(left[0])


def _tile_sizes(extent: int) -> np.ndarray:
    return np.unique([-(-extent // min(parts, extent)) for parts in _PARTS]).astype(np.float64)
