import csv
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from systolic_samples import array_of, drawn_shapes
from systolic_witness import simulate

from hwmodels.compute.systolic.array import DATAFLOWS, buffer_elements, smooth_buffer_elements

DATA = Path(__file__).parent / "data"
every_dataflow = pytest.mark.parametrize("dataflow", DATAFLOWS)


def test_by_hand():
    # 3 x 2 elements, a 5 x 7 by 7 x 4 product. Weights held: the 35 inputs pass 2 folds of n; 3 folds of k write 20 sums
    # each, the last two read them first. Outputs held: inputs pass 2 folds of n, the 28 weights 2 of m. Inputs held: the
    # weights pass 3 folds of m.
    assert buffer_elements(array_of(3, 2, "ws"), 5, 7, 4) == (70, 28, 100)
    assert buffer_elements(array_of(3, 2, "os"), 5, 7, 4) == (70, 56, 20)
    assert buffer_elements(array_of(3, 2, "is"), 5, 7, 4) == (35, 84, 100)


def test_requests_of_scale_sim():
    with (DATA / "scalesim_rectangular.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        m, k, n = (int(row[size]) for size in "MKN")
        elements = buffer_elements(array_of(int(row["rows"]), int(row["columns"]), row["dataflow"]), m, k, n)
        assert elements.input_reads == int(row["input_reads"])
        assert elements.weight_reads == int(row["weight_reads"])
        if row["dataflow"] != "os":
            # It counts writes only; all but the first write of a sum follow a read.
            assert elements.output_accesses == 2 * int(row["output_writes"]) - m * n


@every_dataflow
@pytest.mark.parametrize("convention", ["huffllm", "pipelined"])
def test_cycle_by_cycle(dataflow, convention):
    for rows, columns, m, k, n in drawn_shapes(f"reads {dataflow}", 60):
        inputs, weights = np.ones((m, k), int), np.ones((k, n), int)
        run = simulate(dataflow, convention, rows, columns, inputs, weights, max(rows, m, k, n))
        assert buffer_elements(array_of(rows, columns, dataflow), m, k, n) == run[2:]


@pytest.mark.device_matrix
@every_dataflow
def test_gradient(dataflow, check_gradient):
    def total(x):
        rows, columns, *sizes = x
        counts = smooth_buffer_elements(array_of(rows, columns, dataflow), *sizes, jnp.array([0.0, 0.15]))
        return sum(jnp.sum(jnp.log(count)) * weight for count, weight in zip(counts, (1.0, 2.3, 0.7)))

    check_gradient(total, [13.3, 7.7, 29.1, 50.2, 40.9])
