"""What each figure of tuning shows, and what it does with holes."""

import numpy as np
import pytest
from made_results import read

from jaxspec.report.figures.configurations import roofline_figure, tokens_figure
from jaxspec.studies.tune import view


def legend(figure):
    return [text.get_text() for found in figure.legends for text in found.get_texts()]


def test_acceptance_shows_grid_front_and_configurations(make_entry):
    figure = view.acceptance_figure(read(make_entry()))
    axes, bar = figure.axes
    assert len(axes.collections[0].get_offsets()) == 9
    assert legend(figure) == [
        "Pareto front of the grid",
        "all 9 grid points",
        "default: 5.11 bits, 0.952",
        "best grid point: 4.22 bits, 0.931",
        "uniform: 4.13 bits, 0.935",
        "tuned: 3.64 bits, 0.948",
    ]
    assert axes.get_xlabel() == "weights read per draft step (bits per stored weight)"
    assert axes.get_ylabel() == "acceptance alpha_token (probability, measured)"
    assert "predicted" in bar.get_ylabel()
    drawn = {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines}
    assert [float(np.squeeze(values)) for values in drawn["tuned: 3.64 bits, 0.948"]] == [3.64, 0.948]


def test_convergence_shows_seen_and_unseen_text_of_every_stage(make_entry, make_metrics):
    lines = make_metrics()
    tuned = [line for line in lines if line["stage"] == "tuned"]
    tuned[-1] |= {"hard_speedup_seen": 2.4, "hard_speedup_unseen": 2.3}
    figure = view.convergence_figure(read(make_entry()), lines + make_metrics("jetson-agx-orin", steps=9))
    (axes,) = figure.axes
    assert legend(figure) == [
        "uniform: soft draft, on the windows of a pass",
        "tuned: soft draft, on the windows of a pass",
        "tuned: hard draft, on all windows seen",
        "tuned: hard draft, on windows not seen",
        "default, held out: 1.93x",
        "grid, held out: 2.04x",
        "uniform, held out: 2.09x",
        "tuned, held out: 2.33x",
    ]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [0, 1, 2, 3])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [1.5, 1.6, 1.7, 1.8])
    assert [axes.lines[i].get_ydata()[0] for i in (2, 3)] == [2.4, 2.3]


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


def test_tokens_predicted_and_counted(make_entry):
    entry = make_entry()
    entry["configurations"]["grid"]["tokens_per_cycle_gap_in_standard_errors"] = 3.4
    figure = tokens_figure(read(entry))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "default\ngap 0.8 standard errors",
        "grid\ngap 3.4 standard errors\nDEFECT",
        "uniform\ngap 0.4 standard errors",
        "tuned\ngap 0.5 standard errors",
    ]
    assert len(axes.containers) == 4
    _, _, (bar,) = axes.containers[0]
    (low, high) = bar.get_segments()[0][:, 1]
    # Three standard errors of 0.061 around 5.21.
    assert (low, high) == pytest.approx((5.027, 5.393))
    assert legend(figure) == [
        "expected from the acceptance (predicted)",
        "counted in decoding (measured); bars: 3 standard errors up and down",
    ]
