"""Small matrices that a measurement found in the cache."""

import numpy as np
import pytest

from experiments.silicon.refit import cached_bytes, rows_from_cache
from hwmodels.analysis.calibration.kernel_tables import DataSheet, GemmTable, TableName

L40S = TableName("l40s", "vllm", "0.24.0", "gemm")


@pytest.mark.parametrize(
    ("system", "engine", "weight_format", "expected"),
    [
        ("l40s", "vllm", "fp8", 16e6),  # six copies in 96 MB
        ("h100_sxm", "trtllm", "fp8", 10e6),  # five in 50 MB
        ("b200_sxm", "sglang", "nvfp4", 21e6),
        ("b200_sxm", "vllm", "nvfp4", 126e6),  # one copy
        ("toy", "vllm", "fp8", 0.0),
        ("l40s", "engine", "fp8", 0.0),
    ],
)
def test_the_cache_holds_as_many_copies_as_are_measured(system, engine, weight_format, expected):
    assert cached_bytes(TableName(system, engine, "1", "gemm"), weight_format) == pytest.approx(expected)


def test_a_row_counts_where_arithmetic_takes_longer_than_memory():
    """FP8 at 600 TFLOP/s and 1 TB/s: reading a byte takes as long as 300 rows of its products."""
    sheet, m = DataSheet(3e14, 1e12, 142.0), np.array([1.0, 299.0, 301.0, 4096.0])
    small, large = (GemmTable(m, np.full(4, 4096.0), np.full(4, n), np.ones(4), 8.0, "fp8") for n in (1024.0, 8192.0))
    assert rows_from_cache(L40S, small, sheet).tolist() == [True, True, False, False]
    assert not rows_from_cache(L40S, large, sheet).any()
