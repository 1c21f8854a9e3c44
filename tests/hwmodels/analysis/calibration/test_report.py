import math

import pytest

from hwmodels.analysis.calibration.report import error_by_range, relative_error


def test_errors_by_hand():
    summary = relative_error([1.1, 0.8, 3.0], [1.0, 1.0, 2.0])
    assert (summary.rows, summary.largest) == (3, 0.5)
    assert summary.mean == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert summary.median == pytest.approx(0.2)
    assert math.isnan(relative_error([], []).mean)
    ranges = error_by_range([1, 2, 16, 17, 5000], [1, 1.2, 1.0, 2, 4], [1, 1, 1, 1, 1])
    assert {name: (e.rows, round(e.mean, 3)) for name, e in ranges.items()} == {
        "1": (1, 0.0),
        "2 to 16": (2, 0.1),
        "17 to 64": (1, 1.0),
        "1025 and more": (1, 3.0),
    }
