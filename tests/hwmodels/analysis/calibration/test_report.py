import math

import pytest

from hwmodels.analysis.calibration.report import CalibrationReport, error_by_range, figure, relative_error


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


def test_markdown():
    errors = relative_error([1.1], [1.0])
    report = CalibrationReport(
        "gpu",
        {"a": 2.0, "b": 3.0},
        {"a": 0.25, "b": math.nan},
        {"train": errors},
        {"1": errors},
        {"roofline": errors},
        ["One row."],
    )
    text = report.to_markdown()
    assert "| a | 2 | 0.25 |" in text
    assert "| b | 3 | at a bound |" in text
    assert "| roofline, held out | 1 | 10.00% | 10.00% | 10% |" in text
    assert text.endswith("One row.\n")
    assert report.to_dict()["standard_errors"] == {"a": 0.25}


def test_figure_draws_every_row():
    axis = figure([1e-6, 2e-6, 3e-6], [1e-6, 2.2e-6, 3e-6], [False, True, True]).axes[0]
    assert sum(len(line.get_xdata()) for line in axis.lines[:2]) == 3
