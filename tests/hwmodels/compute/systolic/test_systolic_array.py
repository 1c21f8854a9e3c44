import csv
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from systolic_samples import KINDS, SIDES, SIZES, SOME_KINDS, array_of, drawn_shapes
from systolic_witness import simulate

from hwmodels.compute.systolic.array import CONVENTIONS, cycles, elapsed_cycles, mapping, smooth_cycles

DATA = Path(__file__).parent / "data"
every_kind = pytest.mark.parametrize(("dataflow", "convention"), KINDS)
smooth, elapsed = jax.jit(smooth_cycles), jax.jit(elapsed_cycles)


def table(name):
    with (DATA / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_by_hand():
    # 3 x 2 elements, weights stationary, a 5 x 7 by 7 x 4 product: 3 folds of k, 2 of n; a load takes 3 cycles, a stream
    # 5 + 3 + 2 - 2 = 8. One after the other 6 * 11 = 66; loads hidden 3 + 6 * 8 = 51; a wave every 5: 3 + 5 * 5 + 8 = 36.
    expected = {"scale_sim": 65, "huffllm": 66, "double_buffered": 51, "pipelined": 36}
    assert {c: cycles(array_of(3, 2, "ws", c), 5, 7, 4) for c in CONVENTIONS} == expected
    # Outputs stationary: 2 folds of m, 2 of n, streams of 7 + 3 = 10: 4 * 10 - 1, 4 * 13, 3 + 4 * 10, 3 + 3 * 7 + 10.
    expected = {"scale_sim": 39, "huffllm": 52, "double_buffered": 43, "pipelined": 34}
    assert {c: cycles(array_of(3, 2, "os", c), 5, 7, 4) for c in CONVENTIONS} == expected
    # Inputs stationary: 3 folds of k, 3 of m, streams of 4 + 3 = 7: 9 * 10 - 1, 9 * 10, 3 + 9 * 7, 3 + 8 * 4 + 7.
    expected = {"scale_sim": 89, "huffllm": 90, "double_buffered": 66, "pipelined": 42}
    assert {c: cycles(array_of(3, 2, "is", c), 5, 7, 4) for c in CONVENTIONS} == expected


@pytest.mark.parametrize("file", ["scalesim_cycles.csv", "scalesim_rectangular.csv"])
def test_every_row_of_scale_sim(file):
    rows = table(file)
    assert len(rows) == {"scalesim_cycles.csv": 102, "scalesim_rectangular.csv": 90}[file]
    for row in rows:
        sides = [int(row.get(name) or row["array_rows_and_columns"]) for name in ("rows", "columns")]
        array = array_of(*sides, row["dataflow"], "scale_sim")
        assert cycles(array, *(int(row[size]) for size in "MKN")) == int(row["compute_cycles"]), row


@every_kind
def test_cycle_by_cycle(dataflow, convention):
    for rows, columns, m, k, n in drawn_shapes(f"{dataflow} {convention}", 80):
        inputs, weights = np.arange(m * k).reshape(m, k) % 11 - 4, np.arange(k * n).reshape(k, n) % 13 - 5
        array = array_of(rows, columns, dataflow, convention)
        interval = max(rows, mapping(array, m, k, n).steps)
        run = simulate(dataflow, convention, rows, columns, inputs, weights, interval)
        np.testing.assert_array_equal(run.product, inputs @ weights)
        # SCALE-Sim prints the index of the last cycle, the first being 0.
        printed = run.cycles - 1 if convention == "scale_sim" else run.cycles
        assert cycles(array, m, k, n) == printed, (rows, columns, m, k, n)


@pytest.mark.device_matrix
@given(st.sampled_from(KINDS), SIDES, SIDES, SIZES, SIZES, SIZES)
def test_never_faster_than_the_multiplications(kind, rows, columns, m, k, n):
    array = array_of(rows, columns, *kind)
    passed = cycles(array, m, k, n) + (kind[1] == "scale_sim")
    assert passed * rows * columns >= m * k * n
    # And at least one wave goes through the whole array.
    assert passed >= mapping(array, m, k, n).steps + rows + columns - 2


@every_kind
def test_temperature_to_zero_tends_to_the_exact_count(dataflow, convention):
    rows, columns, *sizes = np.array(drawn_shapes("zero", 60, largest=70)).T
    array = array_of(rows, columns, dataflow, convention)
    exact = cycles(array, *sizes)
    assert exact.dtype == np.int64
    temperatures = np.array([1.0, 0.3, 0.1, 0.01, 1e-3, 1e-5, 0.0], np.float32)[:, None]
    counts = np.asarray(smooth(array, *sizes, temperatures))
    np.testing.assert_array_equal(counts[-1], exact)
    errors = np.abs(counts - exact) / (exact + (convention == "scale_sim"))
    assert np.all(np.diff(np.mean(errors[:-1], axis=1)) < 0)
    assert errors[0].max() > 0.2
    # Used shares of a last tile are 1 / 70 at least; two numbers of folds multiply.
    assert errors[4].max() < 2 * (2 * 1e-3 + (70 * 1e-3) ** 2) + 1e-6
    assert errors[5].max() < 1e-4


@pytest.mark.device_matrix
def test_gradient(check_gradient):
    # No size is a multiple of a side, so that at temperature 0 no fold begins within the differences.
    def count(x):
        rows, columns, *sizes = x
        arrays = [array_of(rows, columns, *kind) for kind in SOME_KINDS]
        counts = jnp.stack([smooth_cycles(array, *sizes, jnp.array([0.0, 0.15, 0.8])) for array in arrays])
        return jnp.sum(counts * jnp.array([[1.0], [0.6], [1.3], [2.9]]) * jnp.array([[1.0, 1.7, 2.9]]))

    check_gradient(count, [13.3, 7.7, 29.1, 50.2, 40.9])


@pytest.mark.device_matrix
def test_jit_vmap_grad_without_retracing():
    def slopes(array, sizes):
        return jax.vmap(jax.grad(lambda array, m: smooth_cycles(array, m, 40.0, 33.0, 0.2)), (None, 0))(array, sizes)

    traced = jax.jit(chex.assert_max_traces(slopes, n=1))
    slope = jax.jit(lambda a, m: jax.grad(lambda a: smooth_cycles(a, m, 40.0, 33.0, 0.2))(a).rows)
    sizes = jnp.array([3.0, 17.0, 90.0])
    for rows in (13.0, 14.5):
        array = array_of(rows, 7.0)
        by_rows = [slope(array, m) for m in sizes]
        np.testing.assert_allclose(traced(array, sizes).rows, by_rows, rtol=1e-5)
