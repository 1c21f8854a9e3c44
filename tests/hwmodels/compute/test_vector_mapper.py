import itertools
import math
import random

import numpy as np
import pytest

from hwmodels.compute.vector_array import SPREADS
from hwmodels.compute.vector_mapping import (
    HELD,
    ORDERS,
    AccessEnergies,
    BufferedArray,
    Grid,
    Mapping,
    MappingCost,
    dram_time,
    exact_ceil,
    fits,
    operand_traffic,
    priced,
    search,
)

ARRAY = BufferedArray(
    pe_rows=2,
    pe_columns=3,
    vector_macs=2,
    vector_width=3,
    frequency_hz=1.3e9,
    weight_buffer_bytes=26,
    input_buffer_bytes=22,
    accumulator_buffer_bytes=25,
    global_buffer_bytes=150,
    weight_lanes=4,
)
ENERGIES = AccessEnergies(dram_j_per_bit=7e-12, buffer_j_per_bit=3e-13, mac_j=5e-13)
BANDWIDTH = 9e9
OPTIONS = {"bandwidth_bytes_per_s": BANDWIDTH, "energies": ENERGIES, "weight_bits": 11.0}


def walk(mapping, m, k, n, weight_bits):
    """Walks over the tiles with one tile of each operand on chip, element by element, and counts."""
    sizes = dict(zip("mkn", (m, k, n), strict=True))
    tile = dict(zip("mkn", mapping.tile, strict=True))
    pes = {d: (2 if mapping.rows == d else 1) * (3 if mapping.columns == d else 1) for d in "mkn"}
    step = {"m": 1, "k": 3, "n": 2}
    cuts = {d: [range(i, min(i + tile[d], sizes[d])) for i in range(0, sizes[d], tile[d])] for d in "mkn"}
    on_chip = {"weights": None, "inputs": None, "outputs": None}
    moved = {"weights": 0, "inputs": 0, "out": 0, "back": 0}
    cycles, weights_read, seen, touched = 0, 0, set(), set()
    for place in itertools.product(*(range(len(cuts[d])) for d in mapping.order)):
        at = dict(zip(mapping.order, place, strict=True))
        spans = {d: cuts[d][at[d]] for d in "mkn"}
        extent = {d: len(spans[d]) for d in "mkn"}
        touched.update(itertools.product(*(spans[d] for d in "mkn")))
        cycles += math.prod(math.ceil(extent[d] / (pes[d] * step[d])) for d in "mkn")
        weights_read += extent["k"] * extent["n"]
        for name, dims in (("weights", "kn"), ("inputs", "mk"), ("outputs", "mn")):
            identity = tuple(at[d] for d in dims)
            if on_chip[name] == identity:
                continue
            on_chip[name] = identity
            elements = math.prod(extent[d] for d in dims)
            if name != "outputs":
                moved[name] += elements
            else:
                moved["out"] += elements
                moved["back"] += elements if identity in seen else 0
                seen.add(identity)
    # All multiply-adds, each once.
    assert len(touched) == m * k * n
    inputs_held, outputs_held = mapping.held
    activation_bits = 16 * (m * k if inputs_held else moved["inputs"]) + 16 * m * n
    # Each sum leaves once as an output; whatever leaves more often, leaves and returns as a partial sum.
    assert moved["out"] == m * n + moved["back"]
    activation_bits += 0 if outputs_held else 64 * moved["back"]
    buffer_bits = 0.0
    if inputs_held:
        buffer_bits += 16 * (m * k + moved["inputs"])
    if outputs_held:
        buffer_bits += 64 * moved["back"] + 32 * m * n
    buffer_bits += weight_bits * (moved["weights"] + weights_read) * pes["m"]
    buffer_bits += 16 * (moved["inputs"] * pes["n"] + m * k * n / 2)
    buffer_bits += 64 * (m * k * n / 3 + moved["back"] + (pes["k"] - 1) * moved["out"])
    dram_bits = weight_bits * moved["weights"] + activation_bits
    compute_s, dram_s = cycles / 1.3e9, dram_bits / 8 / BANDWIDTH
    return MappingCost(
        total_s=max(compute_s, dram_s),
        compute_s=compute_s,
        dram_s=dram_s,
        dram_weight_bits=weight_bits * moved["weights"],
        dram_activation_bits=activation_bits,
        buffer_bits=buffer_bits,
        weights_read=weights_read,
        total_j=dram_bits * 7e-12 + buffer_bits * 3e-13 + m * k * n * 5e-13,
    )


def mapping_cost(array, mapping, m, k, n, *, bandwidth_bytes_per_s, energies, weight_bits):
    sizes, tile = (tuple(map(np.float64, lengths)) for lengths in ((m, k, n), mapping.tile))
    grid = Grid(array, (mapping.rows, mapping.columns), sizes, tile, exact_ceil)
    traffic = operand_traffic(grid, mapping.order, mapping.held, weight_bits, np.where)
    compute_s, dram_s = grid.compute_s, dram_time(traffic, bandwidth_bytes_per_s)
    times = (max(compute_s, dram_s), compute_s, dram_s)
    return priced(grid, traffic, mapping.held, energies, weight_bits, times)


def all_mappings(m, k, n):
    tiles = itertools.product(*(range(1, size + 1) for size in (m, k, n)))
    for (rows, columns), tile, order, held in itertools.product(SPREADS, tiles, ORDERS, HELD):
        yield Mapping(rows, columns, tile, order, held)


def test_by_hand():
    # 5 x 4 by 4 x 6 in tiles of 5 x 4 x 2: n outermost, so inputs stay and weights and outputs change: all move once.
    once = mapping_cost(ARRAY, Mapping("k", "n", (5, 4, 2), "nmk", (False, False)), 5, 4, 6, **OPTIONS)
    assert float(once.dram_weight_bits) == 24 * 11
    assert float(once.dram_activation_bits) == (20 + 30) * 16
    # Three tiles, each 5 * ceil(4 / 6) * ceil(2 / 6) cycles.
    assert float(once.compute_s) == pytest.approx(15 / 1.3e9)
    # In tiles of 5 x 2 x 2, k innermost: inputs change with k, so they are fetched for each of three tiles of n.
    inputs = mapping_cost(ARRAY, Mapping("k", "n", (5, 2, 2), "nmk", (False, False)), 5, 4, 6, **OPTIONS)
    assert float(inputs.dram_activation_bits) == (3 * 20 + 30) * 16
    # k outermost: inputs stay, but all sums come back once.
    sums = mapping_cost(ARRAY, Mapping("k", "n", (5, 2, 2), "kmn", (False, False)), 5, 4, 6, **OPTIONS)
    assert float(sums.dram_activation_bits) == (20 + 30) * 16 + 2 * 30 * 32
    # ... but not to DRAM if the global buffer holds them.
    held = mapping_cost(ARRAY, Mapping("k", "n", (5, 2, 2), "kmn", (False, True)), 5, 4, 6, **OPTIONS)
    assert float(held.dram_activation_bits) == (20 + 30) * 16
    assert float(held.buffer_bits) > float(sums.buffer_bits)


def test_what_fits():
    # 2 x 1 weights of 11 bits in each PE (rows along k), 5 x 2 inputs of 20 bytes, 5 x 1 sums of 20 bytes.
    mapping = Mapping("k", "n", (5, 4, 3), "mkn", (False, False))
    assert fits(ARRAY, mapping, 5, 4, 6, weight_bits=11)
    assert not fits(ARRAY.replace(input_buffer_bytes=19), mapping, 5, 4, 6, weight_bits=11)
    assert not fits(ARRAY.replace(accumulator_buffer_bytes=19), mapping, 5, 4, 6, weight_bits=11)
    assert fits(ARRAY.replace(weight_buffer_bytes=22 / 8), mapping, 5, 4, 6, weight_bits=11)
    assert not fits(ARRAY.replace(weight_buffer_bytes=22 / 8), mapping, 5, 4, 6, weight_bits=11.1)
    # The global buffer holds 40 bytes of inputs, or 120 of sums, not both.
    assert [fits(ARRAY, mapping._replace(held=held), 5, 4, 6) for held in HELD] == [True, True, True, False]


@pytest.mark.device_matrix
def test_tile_by_tile():
    draw = random.Random(7)
    for m, k, n in ((1, 1, 1), (5, 4, 6), (3, 8, 5), (7, 2, 3)):
        for mapping in draw.sample(list(all_mappings(m, k, n)), 40 if m * k * n > 1 else 10):
            ours = mapping_cost(ARRAY, mapping, m, k, n, **OPTIONS)
            np.testing.assert_allclose(ours, walk(mapping, m, k, n, 11.0), rtol=2e-6, err_msg=str(mapping))


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 4), (3, 4, 3), (4, 2, 6)])
@pytest.mark.parametrize("bandwidth", [9e8, 3e10])
def test_search_finds_what_trying_all_mappings_finds(m, k, n, bandwidth):
    # A tight input buffer and hardly a global one, so that not everything fits; the fastest mapping depends on the bandwidth.
    array = ARRAY.replace(input_buffer_bytes=9, accumulator_buffer_bytes=17, global_buffer_bytes=25)
    options = {**OPTIONS, "bandwidth_bytes_per_s": bandwidth}
    found, cost = search(array, m, k, n, **options)
    assert fits(array, found, m, k, n, weight_bits=11)
    np.testing.assert_allclose(mapping_cost(array, found, m, k, n, **options), cost, rtol=2e-6)
    fitting = [x for x in all_mappings(m, k, n) if fits(array, x, m, k, n, weight_bits=11)]
    assert 0 < len(fitting) < len(list(all_mappings(m, k, n)))
    walked = [walk(mapping, m, k, n, 11.0) for mapping in fitting]
    times = np.array([max(w.compute_s, w.dram_s * BANDWIDTH / bandwidth) for w in walked])
    assert cost.total_s == pytest.approx(times.min(), rel=1e-9)
    # Of the fastest, the cheapest; the search tries no tile that is not an equal part, which may be cheaper by its copies.
    best = min(w.total_j for w, time in zip(walked, times, strict=True) if time <= times.min() * (1 + 1e-9))
    assert best * (1 - 1e-9) <= cost.total_j <= best * 1.03
