"""A small mapper for vector arrays: which tiles of a product, in which order, with the grid laid how, move least.

`search` enumerates tiles, orders and layouts on the host with exact counts, and takes the fastest and of these the cheapest.
What one of them takes, and why, is `hwmodels.compute.vector_mapping`.

Source: Huff-LLM, section 4 (Timeloop minimises latency first, energy second).
Departs: Timeloop searches at random over more levels; this is complete over fewer. Tiles are one size per dimension, taken
    from a list of equal parts; within a tile the loops are fixed; the grid's idle PEs are not filled up with other tiles;
    a buffer holds one tile, without room set aside for the next.
"""

from __future__ import annotations

import itertools

import numpy as np

from hwmodels.compute.vector_array import DIMENSIONS, SPREADS
from hwmodels.compute.vector_buffers import BufferedArray
from hwmodels.compute.vector_mapping import (
    AccessEnergies,
    Grid,
    Mapping,
    MappingCost,
    dram_time,
    exact_ceil,
    held_bytes,
    operand_traffic,
    priced,
    tiles_fit,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.folds import as_whole

__all__ = ["HELD", "ORDERS", "search"]

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
            found = MappingCost(*(float(value[i]) for value in cost))
            if best is None or _first(MappingCost(*np.array([best[1], found]).T)) == 1:
                tile = int(few.tile[0][i]), int(few.tile[1][i]), int(few.tile[2][i])
                best = Mapping(*spread, tile, order, held), found
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
