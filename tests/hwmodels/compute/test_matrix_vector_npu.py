import itertools
import random

import jax
import numpy as np
import pytest
import unit_checks

from hwmodels import OPERATORS, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.compute import matrix_vector_npu
from hwmodels.compute.matrix_vector_npu import SCHEDULES, MatrixVectorNpu
from hwmodels.compute.vector_array import GatheredTable, VectorUnits, softmax_time
from hwmodels.compute.weight_layouts import CoalescedGroups
from hwmodels.network.operators import StepShape

pytestmark = pytest.mark.device_matrix

SIZES = ((6.0, 7.0, 23.0), (4.0, 9.0, 61.0))


def seconds_of(npu, m, k, n, weight_bits=16.0):
    return float(unit_checks.product_time(npu, m, k, n, weight_bits, 0.0))


def npu_of(schedule="pipelined", **changes):
    """Tiles of 4 x 3 by 3 x 2: a product of two tiles takes 48 operations, 1 ns; 6 weights are converted in 0.6 ns."""
    vector = VectorUnits(
        units=2.0,
        packets_per_s=1e10,
        register_scores=5.0,
        score_packets=3.0,
        row_packets=11.0,
        layout=CoalescedGroups(register_bits=12.0, register_packets=6.0),
        exponential=GatheredTable(gather_packets=17.0, table_bytes=10.0),
    )
    npu = MatrixVectorNpu(
        peak_flops_per_s=48e9,
        tile_rows=4.0,
        tile_depth=3.0,
        tile_columns=2.0,
        vector=vector,
        dma_bytes_per_s=7.5e9,
        schedule=schedule,
    )
    return npu.replace(**changes)


stage_times = unit_checks.compiled(matrix_vector_npu.stage_times)
both_schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def test_by_hand():
    # 5 x 7 by 7 x 3: 2 tiles of m, 3 of k, 2 strips. Multiplying 2 * 3 * 2 ns. Six tiles of weights: of 4.5 bits in 6 packets
    # per register and unit, 36 / 3 * 6 / 2e10 s; 36 * 4.5 / 8 bytes at 7.5 GB/s.
    stages = stage_times(npu_of(), 5, 7, 3, weight_bits=4.5)
    np.testing.assert_allclose(stages, [12e-9, 3.6e-9, 2.7e-9], rtol=1e-6)
    assert seconds_of(npu_of("serial"), 5, 7, 3, 4.5) == pytest.approx(18.3e-9)
    # Pipelined: the first strip goes through all stages in 9.15 ns, the second adds the 6 ns of its multiplications.
    assert seconds_of(npu_of(), 5, 7, 3, 4.5) == pytest.approx(15.15e-9)
    # Codes of 8 bits fill twice as many registers; 16 bits are not converted at all.
    assert float(stage_times(npu_of(), 5, 7, 3, weight_bits=8.5).vector_s) == pytest.approx(7.2e-9)
    assert float(stage_times(npu_of(), 5, 7, 3, weight_bits=16).vector_s) == 0
    assert seconds_of(npu_of("serial"), 5, 7, 3) == pytest.approx(12e-9 + 36 * 2 / 7.5e9)


def simulate(schedule, m, k, n, bits):
    """Tile by tile: every stage takes the next tile, or strip, when it is free and the stage before has finished it."""
    inputs, weights = np.arange(m * k).reshape(m, k) % 11 - 4, np.arange(k * n).reshape(k, n) % 13 - 5
    result = np.zeros((m, n), int)
    # Seconds of one tile in each stage, as `npu_of` says.
    copy_s, convert_s, multiply_s = 6 * bits / 8 / 7.5e9, 0.6e-9 * (bits < 16), 1e-9
    dma_free = vector_free = matrix_free = 0.0
    for column in range(0, n, 2):
        if schedule == "serial":
            dma_free = matrix_free
        for _ in range(0, k, 3):
            dma_free += copy_s
        vector_free = max(vector_free, dma_free)
        for _ in range(0, k, 3):
            vector_free += convert_s
        matrix_free = max(matrix_free, vector_free)
        for row, depth in itertools.product(range(0, m, 4), range(0, k, 3)):
            block = inputs[row : row + 4, depth : depth + 3] @ weights[depth : depth + 3, column : column + 2]
            result[row : row + 4, column : column + 2] += block
            matrix_free += multiply_s
    np.testing.assert_array_equal(result, inputs @ weights)
    return matrix_free


@both_schedules
def test_tile_by_tile(schedule):
    draw = random.Random(schedule)
    npu = npu_of(schedule)
    shapes = [(m, draw.randint(1, 18), draw.randint(1, 12)) for m in (*range(1, 18), *range(1, 18), 24)]
    for m, k, n in shapes:
        for bits in (3.7, 4.5, 16.0):
            seconds = seconds_of(npu, m, k, n, bits)
            assert seconds == pytest.approx(simulate(schedule, m, k, n, bits), rel=1e-5), (m, k, n, bits)


def test_idle_rows_cost_nothing_and_a_further_tile_does():
    # Table 2's rates: up to 32 tokens take the same time, of which one token uses 1/32.
    hexagon = npu_of(peak_flops_per_s=12.03254e12, tile_rows=32.0, tile_depth=32.0, tile_columns=32.0)
    tokens = np.array([1.0, 3.0, 17.0, 31.0, 32.0, 33.0, 64.0, 65.0])
    matrix_s = np.asarray(stage_times(hexagon, tokens, 1536, 8960, weight_bits=16).matrix_s)
    np.testing.assert_allclose(matrix_s / matrix_s[0], [1, 1, 1, 1, 1, 2, 2, 3], rtol=1e-6)
    useful_s = 2 * tokens * 1536 * 8960 / 12.03254e12
    np.testing.assert_allclose(useful_s[:5] / matrix_s[:5], tokens[:5] / 32, rtol=1e-6)


def test_activations_that_do_not_fit_make_weights_come_again():
    # 70 sums of 2 bytes are 140 bytes a row; 440 bytes less the table's 10 hold three rows.
    small = npu_of(on_chip_bytes=440.0)
    all_fit = stage_times(npu_of(), 1, 70, 31, weight_bits=4.5)
    for rows, times in ((1, 1), (3, 1), (4, 2), (6, 2), (7, 3)):
        stages = stage_times(small, rows, 70, 31, weight_bits=4.5)
        assert float(stages.dma_s) == pytest.approx(times * float(all_fit.dma_s), rel=1e-5), rows
        assert float(stages.vector_s) == pytest.approx(times * float(all_fit.vector_s), rel=1e-5), rows
    # Where less than a row fits, or the table alone does not, weights come for each row.
    for held in (100.0, 10.0, 3.0):
        stages = stage_times(npu_of(on_chip_bytes=held), 6, 70, 31, weight_bits=4.5)
        assert float(stages.dma_s) == pytest.approx(6 * float(all_fit.dma_s), rel=1e-5), held


@jax.jit
def priced(device, tokens=9.0):
    work = step_operators(
        catalog.architecture("qwen2.5-1.5b"),
        StepShape(tokens=tokens, batch=2.0, context_tokens=4000.0, weight_bits=uniform_weight_bits(4.5), kv_bits=16.0),
    )
    return work, step_cost(device, work)


def on_v75(**changes):
    device = catalog.device("hexagon-v75")
    return device.replace(matrix_unit=device.matrix_unit.replace(**changes), operator_latency_s=0.0)


def test_attention_is_products_and_a_softmax_for_each_head():
    softmax_s = float(softmax_time(on_v75().matrix_unit.vector, 6 * 9.0, 4005.0)) * 28 * 2 * 2
    (_, slow), (_, fast) = priced(on_v75(schedule="serial")), priced(on_v75())
    i = OPERATORS.index("attention")
    work, _ = priced(on_v75())
    unit = on_v75().matrix_unit.on(on_v75())
    split = matrix_vector_npu.attention_times(unit, work)
    assert float(split.softmax_s) * 28 * 2 * 2 == pytest.approx(softmax_s, rel=1e-5)
    assert float(fast.compute_s[i]) == pytest.approx(28 * 4 * float(max(split)), rel=1e-5)
    products_s = float(unit.replace(schedule="serial").product_time(54.0, 256.0, 4005.0))
    assert float(slow.compute_s[i]) == pytest.approx(28 * 4 * products_s + softmax_s, rel=1e-5)


def test_what_is_no_product_comes_over_the_core_path():
    work, slow = priced(on_v75(core_path_bytes_per_s=1e9))
    for name in ("embed", "norm"):
        i = OPERATORS.index(name)
        assert float(slow.memory_s[i]) == pytest.approx(float(work.memory_bytes[i]) / 1e9, rel=1e-5)
    _, fast = priced(on_v75(core_path_bytes_per_s=None))
    others = [i for i, name in enumerate(OPERATORS) if name not in ("embed", "norm")]
    np.testing.assert_array_equal(np.asarray(slow.operator_s)[others], np.asarray(fast.operator_s)[others])


def test_schedules():
    m, k, n, bits, temperatures = unit_checks.grid(SIZES)
    pipelined, serial = (unit_checks.product_time(npu_of(s), m, k, n, bits, temperatures) for s in SCHEDULES)
    exact = temperatures == 0
    assert np.all(pipelined[exact] <= serial[exact] * (1 + 1e-6))
    # A single strip has nothing to overlap with; at temperature 1 nothing overlaps.
    np.testing.assert_allclose(
        pipelined[(n <= 2) | (temperatures == 1)], serial[(n <= 2) | (temperatures == 1)], rtol=1e-5
    )
    # Many strips: the slowest stage alone.
    stages = stage_times(npu_of(), 3, 7, 10**5, weight_bits=4.5)
    assert seconds_of(npu_of(), 3, 7, 10**5, 4.5) == pytest.approx(float(max(stages)), rel=1e-4)
