"""The benchmark of gradients of calibrated GPUs: what varies, what a point is, and its rows."""

import jax
import numpy as np
import pytest

import hwmodels
from experiments.benchmarks import hardware as benchmark
from experiments.benchmarks.hardware import Rate
from hwmodels import catalog

DEVICE = catalog.device("l40s")


def test_every_number_varies_around_the_device():
    designs = benchmark.draw_designs(31, device=DEVICE, seed=3)
    for name, leaf, other in zip(designs._fields, designs, benchmark.draw_designs(31, device=DEVICE, seed=4)):
        assert len(np.unique(leaf)) == 31, name
        assert not np.array_equal(leaf, other), name
    shares = designs.bandwidth_bytes_per_s / DEVICE.memory.bandwidth_bytes_per_s
    assert np.all((shares >= 0.5) & (shares <= 2.0))


@pytest.mark.device_matrix
def test_a_point_is_a_decode_step_of_the_device():
    llama = catalog.architecture("llama-3.1-8b")
    own = benchmark.Design(DEVICE.peak_flops_per_s, DEVICE.memory.bandwidth_bytes_per_s, 16.0, 16.0, 16.0, 3.0, 900.0)
    found = jax.jit(lambda design: benchmark.step_seconds(DEVICE, llama, design))(own)
    workload = hwmodels.Workload(batch=3.0, context_tokens=900.0)
    work = hwmodels.decode_operators(llama, workload, footprint=hwmodels.uniform_footprint(16.0))
    assert float(found) == pytest.approx(float(jax.jit(hwmodels.step_cost)(DEVICE, work).total_s), rel=1e-5)


def test_rows_compare_slopes_with_values(monkeypatch):
    rates = iter([Rate(8e5, 9e5, 1.0), Rate(2e5, 3e5, 2.0)] * 2)
    monkeypatch.setattr(benchmark, "CASES", (("l40s", "llama-3.1-8b"),))
    monkeypatch.setattr(benchmark, "measure", lambda function, chunks, repeats: next(rates))
    rows = benchmark.gpu_gradients(chunk=3, repeats=1)
    assert [(row["ours"], row["peer"], row["ratio"]) for row in rows] == [(2e5, 8e5, 0.25)] * 2
    assert "exact, by 5 numbers" in rows[0]["workload"]
    assert "temperature 0.05" in rows[1]["workload"]
