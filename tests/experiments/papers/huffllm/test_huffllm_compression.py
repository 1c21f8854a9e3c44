import dataclasses

import ml_dtypes
import numpy as np
import pytest
from scipy.special import ndtr

from experiments.papers.huffllm import compression, details
from experiments.papers.huffllm.compression import ScaleModel, draw_normals, stored_patterns, weights
from experiments.papers.huffllm.paper import PAPER
from experiments.reproduce.run import run_paper

SMALL = {"matrices": 2, "rows": 500, "columns": 700}


@pytest.fixture(scope="module")
def sample():
    return compression.sample(3, **SMALL)


@pytest.fixture(scope="module")
def result(sample):
    """The two tables of compression."""
    tables = [table for table in PAPER.tables if table.name in ("entropy_splits", "compression_ratios")]
    solve = lambda seed: details.Solved(sample, {}, None)
    return run_paper(dataclasses.replace(PAPER, tables=tuple(tables), details=(), solve=solve))


def cells(result, table):
    return result.of(table)


def exact_shares(scales, origin, stored):
    """Share of every stored pattern, by integrating the mixture of Gaussians over the rounding interval of each value."""
    dtype = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
    positive = np.arange(1 << 15, dtype=np.uint16).view(dtype[origin])
    positive = positive[np.isfinite(positive.astype(np.float32))].astype(float)
    edges = np.append(0.5 * (positive[1:] + positive[:-1]), np.inf)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(41)
    row_scales = scales.base_scale * np.exp(scales.row_spread * nodes)
    below = ndtr(edges[:, None] / row_scales) @ (node_weights / node_weights.sum())
    shares = np.diff(below, prepend=0.5)
    # No weight is as large as the values that float16 lacks.
    bits = np.minimum(positive, 60000).astype(np.float32).astype(dtype[stored]).view(np.uint16)
    both = np.concatenate([bits, bits | np.uint16(0x8000)])
    return np.bincount(both, np.concatenate([shares, shares]), minlength=1 << 16)


def test_what_formats_make_of_a_value():
    low = lambda x, **formats: int(stored_patterns(np.array([[[x]]], np.float32), **formats)[0, 0, 0])
    born, odd = {"origin": "bfloat16", "stored": "float16"}, 1 + 2**-7
    assert low(1.0, **born) == 0x3C00
    # The last of seven mantissa bits is the fourth from below in float16 ...
    assert low(odd, **born) == 0x3C08
    # ... and the third in the first subnormal binade: 2^-15 (1 + 2^-7) is 516 steps of 2^-24.
    assert low(odd * 2**-15, **born) == 516
    assert low(-odd, origin="bfloat16", stored="bfloat16") == 0xBF81
    # What float16 tells from 1, bfloat16 does not; what it flushes to zero, neither does afterwards.
    assert low(1 + 2**-10, origin="float16", stored="float16") == 0x3C01
    assert low(1 + 2**-10, origin="float16", stored="bfloat16") == 0x3F80
    assert low(2**-26, origin="float16", stored="bfloat16") == 0
    with pytest.raises(ValueError, match="float32"):
        low(1.0, origin="float32", stored="float16")


@pytest.mark.paper
def test_bits_by_hand():
    # Exponents 0, 0, 0, 1: a bit each. Both mantissa halves are constant: a bit each, as every codeword has one.
    patterns = np.array([[[0x0000, 0x8000, 0x0000, 0x0400]]], np.uint16)
    counts = compression.pattern_counts(patterns)
    np.testing.assert_array_equal(compression.coded_bits(counts, "float16"), [[1, 1, 1, 1]])
    np.testing.assert_allclose(compression.field_entropies(counts, (1, 5, 5, 5)), [0.811278, 0.811278, 0, 0], atol=1e-6)
    # As bfloat16, 0x0400 has exponent 8: nibbles 0 and 8; the mantissa takes 7 bits.
    np.testing.assert_array_equal(compression.coded_bits(counts, "bfloat16"), [[1, 1, 1, 7]])
    assert compression.huffman_bits(counts, "bfloat16") == 10


def test_ratios_are_averaged_over_matrices():
    # Exponents 0, 1 take 1 bit, 0, 0, 1, 2 take 1.5: 16 over 4 and 4.5 bits.
    patterns = np.array([[[0, 0, 1, 1]], [[0, 0, 1, 2]]], np.uint16) << np.uint16(10)
    counts = compression.pattern_counts(patterns)
    np.testing.assert_allclose(compression.huffman_bits(counts, "float16"), 16 / np.mean([16 / 4, 16 / 4.5]))


@pytest.mark.paper(2)
@pytest.mark.parametrize(
    ("origin", "stored"), [("bfloat16", "float16"), ("float16", "float16"), ("float16", "bfloat16")]
)
def test_the_sample_agrees_with_the_integral(origin, stored):
    scales = ScaleModel(0.0071, 0.31)
    counts = compression.pattern_counts(
        stored_patterns(weights(scales, draw_normals(5, **SMALL)), origin=origin, stored=stored)
    )
    shares = exact_shares(scales, origin, stored)
    np.testing.assert_allclose(shares.sum(), 1)
    exact = np.round(shares[None] * 1e15).astype(np.int64)
    for widths in ((1, 5, 5, 5), (8, 8), (4, 4, 4, 4)):
        sampled, integrated = compression.field_entropies(counts, widths), compression.field_entropies(exact, widths)
        np.testing.assert_allclose(sampled, integrated, atol=0.012)
    assert abs(compression.huffman_bits(counts, stored) - compression.huffman_bits(exact, stored)) < 0.015
    if stored == "bfloat16":
        assert abs(compression.mean_unary_length(counts) - compression.mean_unary_length(exact)) < 0.02


@pytest.mark.paper
def test_the_fit_finds_the_numbers_that_it_was_made_with(monkeypatch):
    planted, normals = ScaleModel(0.0043, 0.41), draw_normals(11, matrices=1, rows=300, columns=400)
    counts = compression.pattern_counts(stored_patterns(weights(planted, normals), origin="bfloat16", stored="float16"))
    _, exponent, _, lower = compression.field_entropies(counts, (1, 5, 5, 5))
    monkeypatch.setattr(compression, "fitted_cells", lambda: {"exponent": exponent, "lower mantissa": lower})
    found = compression.calibrate(normals)
    np.testing.assert_allclose([found.base_scale, found.row_spread], [0.0043, 0.41], rtol=0.03)


def test_every_printed_cell_is_covered(result):
    assert len(cells(result, "entropy_splits")) == 15
    # Ten models in two formats, bits and ratio each.
    assert len(cells(result, "compression_ratios")) == 40
    assert len(result.rows) == 55
    for row in result.rows:
        error = abs(row["model_value"] - row["paper_value"]) / row["paper_value"]
        np.testing.assert_allclose(row["relative_error"], error)
    calibrated = [row for row in result.rows if row["status"] == "calibrated"]
    names = [row["conditions"]["field_name"] for row in calibrated]
    assert names == ["exponent", "lower mantissa", "sum of the split"]
    assert all(row["conditions"]["split"] == "1-5-5-5" for row in calibrated)


def test_bits_per_weight_are_within_a_hundredth_and_a_half(result):
    for row in cells(result, "compression_ratios"):
        assert row["relative_error"] < 0.015, row
        assert row["status"] == "predicted"


def test_the_model_beats_the_simplest_predictors(result):
    for summary in result.summary.values():
        assert summary["cells"] == summary["covered"]
        assert summary["reproduced"]
        # Fitted to two entropies: cells of the one table, which the other inherits.
        inherited = [name for found in summary["inherits"].values() for name in found]
        assert [*summary["fitted"], *inherited] == ["base_scale", "row_spread"]
    ratios = result.summary["compression_ratios"]
    assert ratios["relative_error"]["predicted"]["cells"] == 40
    for peer in ratios["simplest_predictors"].values():
        assert ratios["judged"]["max"] < peer["max"] / 3
