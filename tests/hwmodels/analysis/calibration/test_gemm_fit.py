import jax
import numpy as np
import pytest

from hwmodels.analysis.calibration.attention import (
    AttentionTable,
    PrefillTable,
    decoding_rows,
    fit_attention,
    fit_prefill,
)
from hwmodels.analysis.calibration.gemm import (
    baselines,
    fit_gemm,
    gemm_conditions,
    gemm_parameters,
    predict_gemm,
)
from hwmodels.analysis.calibration.kernel_tables import DataSheet, GemmTable
from hwmodels.analysis.calibration.least_squares import parameters_of
from hwmodels.analysis.calibration.report import half_of_shapes
from hwmodels.compute.gpu import gemm_time
from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill, prefill_attention_time

pytestmark = pytest.mark.device_matrix

SHEET = DataSheet(3e14, 2e12, 101.0)
TRUTH = {
    "launch_s": 3.1e-6,
    "memory_efficiency": 0.79,
    "compute_efficiency": 0.83,
    "operand_cost": 41.0,
    "wave_rounding": 0.43,
    "split_s": 2.2e-6,
    "sag_exponent": 0.041,
    "row_cost": 0.11,
}
M, K, N = (
    side.ravel().astype(float)
    for side in np.meshgrid([1, 3, 16, 48, 200, 1000, 3000], [1024, 1536, 4096, 9216], [1024, 2560, 6144, 20000])
)


def table(noise=0.0):
    rows = {"m": M, "k": K, "n": N}
    conditions = gemm_conditions(GemmTable(**rows, seconds=np.ones(len(M)), weight_bits=16.0), SHEET)
    times = np.asarray(predict_gemm("bfloat16")(TRUTH, conditions), np.float64)
    times *= np.exp(noise * np.random.default_rng(0).standard_normal(len(M)))
    return GemmTable(**rows, seconds=times, weight_bits=16.0)


def test_recovers_a_gpu():
    measured = table(noise=0.01)
    train = half_of_shapes(K, N)
    found = fit_gemm(measured, SHEET, train)
    assert found.fit.converged
    error = np.abs(found.predicted_s / measured.seconds - 1)
    assert error[~train].mean() < 0.02
    for name in ("launch_s", "memory_efficiency", "split_s"):
        assert found.fit.estimates[name] == pytest.approx(TRUTH[name], rel=0.1)
    np.testing.assert_allclose(gemm_time(found.unit, M, K, N), found.predicted_s, rtol=2e-3)
    simple = baselines(measured, SHEET, train)
    assert all(np.abs(p / measured.seconds - 1).mean() > 0.1 for p in simple.values())


def test_the_host_is_found_in_a_table_without_a_graph():
    """Times that a host of 40 µs, 55 of many rows, holds up are the host's, and the launch stays what it is."""
    truth = TRUTH | {"host_s": 40e-6, "host_rows_s": 15e-6}
    conditions = gemm_conditions(table(), SHEET)
    measured = GemmTable(M, K, N, np.asarray(predict_gemm("bfloat16")(truth, conditions), np.float64), 16.0)
    found, without = (fit_gemm(measured, SHEET, without_graph=given) for given in (True, False))
    assert found.fit.estimates == pytest.approx(truth, rel=0.05)
    assert np.abs(without.predicted_s / measured.seconds - 1).mean() > 0.05
    assert gemm_parameters("fp8", without_graph=True) == parameters_of("quantized") + parameters_of("host")


def test_attention_recovers_a_gpu():
    batch, context, heads = (
        s.ravel().astype(float) for s in np.meshgrid([1, 2, 4, 8, 32], [64, 128, 1024, 8192], [2, 8])
    )
    stream = 4 * batch * context * heads * 128 / 1.7e12
    times = 9e-6 + 0.6e-6 * np.log2(1 + context / 64) + stream * (1 + 0.8 / (1 + stream / 3e-5))
    rows = AttentionTable(batch, np.full_like(batch, 32), heads, np.full_like(batch, 128), context, times)
    assert (decoding_rows(rows) == (context >= 128)).all()
    found = fit_attention(rows, SHEET)
    expected = {"launch_s": 9e-6, "depth_s": 0.6e-6, "memory_efficiency": 0.85, "ramp": 0.8, "ramp_s": 3e-5}
    # No cache served these rows.
    assert {name: found.fit.estimates[name] for name in expected} == pytest.approx(expected, rel=0.03)
    np.testing.assert_allclose(found.predicted_s, times, rtol=2e-3)


def test_prefill_recovers_a_gpu():
    batch, tokens, heads = (
        s.ravel().astype(float) for s in np.meshgrid([1, 2, 8, 32], [32, 64, 300, 1000, 4000, 9000], [8, 24])
    )
    same = lambda value: np.full_like(batch, value)
    decoding = GpuAttention(2e12, 9e-6, 6e-7, 0.85, 0.8, 3e-5, 4e7, 2.0, 6.0, pair_s=1e-8)
    truth = GpuPrefill(3e-6, 0.7, 90.0, 65.0, 2e-8, 0.6)
    shape = {"batch": batch, "tokens": tokens, "num_heads": heads, "num_kv_heads": same(4), "head_dim": same(128)}
    with jax.enable_x64(True):
        times = np.asarray(prefill_attention_time(truth, decoding, **shape, peak_flops_per_s=3e14))
    found = fit_prefill(PrefillTable(**shape, seconds=times), SHEET, decoding)
    np.testing.assert_allclose(found.predicted_s, times, rtol=0.01)
    assert found.fit.estimates["chain_s"] == pytest.approx(2e-8, rel=0.1)
