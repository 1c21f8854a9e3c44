"""What each figure of tuning shows, and what it does with holes."""

import math

import matplotlib
import numpy as np
import pytest
from made_results import read

from jaxspec.report.figures.configurations import operator_time_figure, roofline_figure, tokens_figure
from jaxspec.report.figures.style import text_colour_on
from jaxspec.report.page import drawn
from jaxspec.studies.tune import view
from jaxspec.studies.tune.view import disagreement_in_words, drawings


def texts(figure):
    """Every string on a figure."""
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


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


def test_acceptance_without_speedups_or_grid(make_entry):
    entry = make_entry()
    entry["grid"][2]["speedup_vs_bf16_ar"] = None
    assert len(view.acceptance_figure(read(entry)).axes) == 1
    entry["grid"][3]["alpha_token"] = math.nan
    assert "all 8 grid points" in legend(view.acceptance_figure(read(entry)))
    del entry["grid"]
    assert len(legend(view.acceptance_figure(read(entry)))) == 4
    assert view.acceptance_figure(read({})) is None


def test_what_objective_j_chooses_is_ringed_and_told(make_entry):
    entry = make_entry()
    for place, point in enumerate(entry["grid"]):
        point["relative_j"] = 2.0 - abs(place - 4)
    figure = view.acceptance_figure(read(entry))
    ring = next(line for line in figure.axes[0].lines if line.get_label() == "grid point that objective J chooses")
    point = entry["grid"][4]
    assert [float(np.squeeze(v)) for v in ring.get_data()] == [point["bits_per_weight"], point["alpha_token"]]
    words = disagreement_in_words(read(entry))
    assert "weight_prune 0.3, weight_cut_bits 2, predicted 1.80x, instead of weight_prune 0.6" in words
    entry["grid"][6]["relative_j"] = 3.0
    assert "is predicted to be the fastest: weight_prune 0.6, weight_cut_bits 0" in disagreement_in_words(read(entry))
    # Where it cannot be drawn, and where nothing is known of it.
    entry["grid"][6]["alpha_token"] = None
    assert "grid point that objective J chooses" not in legend(view.acceptance_figure(read(entry)))
    assert disagreement_in_words(read(make_entry())) == ""


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_knobs_show_every_value(make_entry, layers):
    entry = make_entry(layers=layers)
    figure = view.knobs_figure(read(entry))
    prune, cut = figure.axes[:2]
    for axes in (prune, cut):
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            "q",
            "k",
            "v",
            "o",
            "gate",
            "up",
            "down",
            "KV",
        ]
        assert len(axes.texts) == 8 * layers
        assert axes.get_ylabel() == "layer"
    cells = {(round(float(t.get_position()[0]), 2), t.get_position()[1]): t.get_text() for t in prune.texts}
    # Kind i of layer j is pruned by 0.1 + 0.07 i + 0.03 j; 0.1 + 0.07 * 5 = 0.45 for "up" of layer 0.
    assert cells[5.0, 0] == "45"
    assert cells[7.35, layers - 1] == "5"
    assert "draft length 7" in " ".join(texts(figure))


def test_the_knob_of_the_head_is_one_cell_of_all_layers(make_entry):
    entry = make_entry(layers=4)
    entry["configurations"]["tuned"]["knobs"] |= {"head_prune": 0.62, "head_cut_bits": 3}
    figure = view.knobs_figure(read(entry))
    for axes, words in zip(figure.axes[:2], ("62", "3"), strict=True):
        assert axes.get_xticklabels()[-1].get_text() == "head"
        assert len(axes.texts) == 8 * 4 + 1
        (head,) = [text for text in axes.texts if text.get_position()[0] == axes.get_xticks()[-1]]
        assert (head.get_text(), head.get_position()[1]) == (words, 1.5)


def test_knobs_with_a_hole_or_of_no_shape(make_entry):
    entry = make_entry(layers=2)
    entry["configurations"]["tuned"]["knobs"]["weight_cut_bits"]["o"][1] = None
    assert [text.get_text() for text in view.knobs_figure(read(entry)).axes[1].texts].count("n/a") == 1
    entry["configurations"]["tuned"]["knobs"]["kv_prune"] = [0.1]
    assert view.knobs_figure(read(entry)) is None
    del entry["configurations"]["tuned"]["knobs"]
    assert view.knobs_figure(read(entry)) is None


def test_cell_text_is_readable():
    assert text_colour_on("#ffffff") == "#000000"
    assert text_colour_on((0.0, 0.1, 0.4)) == "#ffffff"


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


def test_convergence_with_holes(make_entry, make_metrics):
    lines = make_metrics()
    lines[1]["speedup"] = None
    (axes,) = view.convergence_figure(read(make_entry()), lines).axes
    drawn = {line.get_label().partition(":")[0]: len(line.get_ydata()) for line in axes.lines[:2]}
    assert drawn[lines[1]["stage"]] + 1 == sum(line["stage"] == lines[1]["stage"] for line in lines)
    assert view.convergence_figure(read(make_entry()), make_metrics("another")) is None
    assert view.convergence_figure(read(make_entry()), []) is None


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


def test_roofline_leaves_out_what_a_logarithm_cannot_show(make_entry):
    entry = make_entry()
    entry["configurations"]["grid"]["roofline"]["draft"]["flops_per_s"] = 0.0
    del entry["configurations"]["uniform"]["roofline"]
    # Of nine points, one of the grid and two of the uniform pair are gone.
    assert len(roofline_figure(read(entry)).axes[0].lines) == 1 + 9 - 3
    assert roofline_figure(read(entry | {"device": "unknown-board"})) is None
    given = {
        "peak_flops_per_s": {"value": 2e12, "source": "s"},
        "memory.bandwidth_bytes_per_s": {"value": 1e11, "source": "s"},
        "memory.efficiency": {"value": 0.5, "source": "s"},
    }
    figure = roofline_figure(read(entry | {"device": "unknown-board", "device_data": given}))
    assert figure.axes[0].lines[0].get_xdata()[1] == pytest.approx(40.0)


def test_operator_bars_add_up(make_entry):
    figure = operator_time_figure(read(make_entry()))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "AR step, bf16",
        "draft step, default (5 per cycle)",
        "draft step, tuned (7 per cycle)",
        "verification, default",
        "verification, tuned",
    ]
    # Four operators in the AR step, three in each other bar.
    assert len(axes.patches) == 4 + 4 * 3
    ends = {}
    for patch in axes.patches:
        row = round(patch.get_y() + patch.get_height() / 2)
        ends[row] = max(ends.get(row, 0.0), patch.get_x() + patch.get_width())
    # ms: 1.3 + 0.2 + 15 + 1.1; 0.4 + 5.11 + 1; 0.4 + 3.64 + 1; 1.1 + 13.91 + 1.2; 1.1 + 13.34 + 1.2
    assert ends == pytest.approx({0: 17.6, 1: 6.51, 2: 5.04, 3: 16.21, 4: 15.64})
    assert {"17.6 ms", "6.51 ms", "5.04 ms", "16.2 ms", "15.6 ms"} <= set(texts(figure))
    assert legend(figure) == ["qkv", "attention", "gate_up", "lm_head"]
    assert axes.get_xlabel() == "time of one step (ms, predicted)"


def test_operator_bars_in_microseconds_and_without_data(make_entry):
    entry = make_entry()
    for found in entry["configurations"].values():
        found["operators"] = {"draft": {"qkv": 2e-6, "new": 3e-6}, "verify": {"qkv": None}}
    figure = operator_time_figure(read(entry))
    assert figure.axes[0].get_xlabel() == "time of one step (µs, predicted)"
    assert len(figure.axes[0].get_yticklabels()) == 2
    assert legend(figure) == ["qkv", "new"]
    for found in entry["configurations"].values():
        del found["operators"]
    assert operator_time_figure(read(entry)) is None


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


def test_tokens_without_error_or_count(make_entry):
    entry = make_entry()
    for name in ("default", "grid"):
        entry["configurations"][name]["tokens_per_cycle_counted"] = None
    for key in ("tokens_per_cycle_standard_error", "tokens_per_cycle_gap_in_standard_errors"):
        del entry["configurations"]["tuned"][key]
    labels = [label.get_text() for label in tokens_figure(read(entry)).axes[0].get_xticklabels()]
    assert labels == ["uniform\ngap 0.4 standard errors", "tuned"]
    assert tokens_figure(read({})) is None


def test_nothing_known_draws_nothing():
    assert drawn(drawings(read({}), [])) == {}
