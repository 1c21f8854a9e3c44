"""What each figure of tuning shows, and what it does with holes."""

import numpy as np
import pytest
from made_results import read

from jaxspec.report.configurations import roofline_figure


def legend(figure):
    return [text.get_text() for found in figure.legends for text in found.get_texts()]


def test_roofline_has_roof_and_all_points(make_entry):
    figure = roofline_figure(read(make_entry()))
    (axes,) = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    roof, *points = axes.lines
    # 165.2 TFLOP/s over 1008 GB/s: 163.9 FLOP per byte.
    assert roof.get_xdata()[1] == pytest.approx(163.89, abs=0.01)
    assert max(roof.get_ydata()) == pytest.approx(165.2)
    # AR once, draft step and verification of four configurations.
    assert len(points) == 1 + 2 * 4
    assert "roof: 1.008 TB/s, 165.2 TFLOP/s (input)" in legend(figure)
    assert legend(figure)[1:4] == ["AR step, bf16", "draft step", "verification"]
    low, high = axes.get_xlim()
    assert all(low < float(np.squeeze(point.get_xdata())) < high for point in points)
