import ast
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from made_results import read
from matplotlib.backends.backend_agg import FigureCanvasAgg
from what_is_shown import all_is_shown

import jaxspec.report
from jaxspec.report.figures.style import WIDTH_INCHES
from jaxspec.report.page import drawn as drawn_figures
from jaxspec.studies.tune.view import drawings, pareto_front

pytestmark = pytest.mark.study

ALL = {"acceptance", "knobs", "convergence", "tokens", "roofline", "operator_time"}


def texts(figure):
    """Every string on a figure."""
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


@pytest.mark.parametrize("layers", [2, 5])
def test_every_figure_says_what_was_measured_and_what_priced(make_entry, make_metrics, layers):
    drawn = drawn_figures(drawings(read(make_entry(layers=layers)), make_metrics()))
    assert set(drawn) == ALL
    for figure in drawn.values():
        assert "acceptance measured on embedded (3.08 M parameters), cost predicted for Llama 3.1 8B" in " ".join(
            texts(figure)
        )
        assert figure.get_size_inches()[0] == WIDTH_INCHES
        assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


def drawn_texts(figure):
    """All text that is visible: tick labels beyond an axis' ends exist as objects, but are not drawn."""
    yield from figure.texts
    for found in figure.legends:
        yield from found.get_texts()
    for axes in figure.axes:
        yield from axes.texts
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            yield axis.label
            yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)
            yield from (tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("layers", [2, 5])
def test_text_neither_leaves_the_figure_nor_overlaps(make_entry, make_metrics, name, layers):
    figure = drawn_figures(drawings(read(make_entry(layers=layers)), make_metrics()))[name]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [text for text in drawn_texts(figure) if text.get_text().strip() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown]
    assert len(boxes) > 10
    for index, (text, box) in enumerate(boxes):
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, text
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, text
        for other, second in boxes[index + 1 :]:
            width = min(box.x1, second.x1) - max(box.x0, second.x0)
            height = min(box.y1, second.y1) - max(box.y0, second.y0)
            assert min(width, height) < 1.5, (text, other)


def stretched(entry, *, speed=1.0, time=1.0, tokens=1.0, bits=1.0, knobs=None):
    """An entry of another size, for the ends of every axis."""
    for found in entry["configurations"].values():
        for name in ("speedup_vs_bf16_ar", "speedup_vs_stored_ar"):
            found[name] *= speed
        for name in ("tokens_per_cycle_predicted", "tokens_per_cycle_counted", "tokens_per_cycle_standard_error"):
            found[name] *= tokens
        found["bits_per_weight"] *= bits
        for operators in found["operators"].values():
            for name in operators:
                operators[name] *= time
        for point in found["roofline"].values():
            point["flops_per_s"] /= time
            point["flop_per_byte"] /= bits
    for point in entry["grid"]:
        point["bits_per_weight"] *= bits
        point["speedup_vs_bf16_ar"] *= speed
    return entry


@pytest.mark.parametrize(
    ("size", "layers"),
    [
        ({"speed": 1e-6, "time": 1e-9, "tokens": 1e-3, "bits": 1e-3}, 1),
        ({"speed": 1e6, "time": 1e6, "tokens": 1e3, "bits": 40.0}, 5),
        ({"time": 1e-4}, 40),
        ({"speed": 0.0, "time": 1.0}, 2),
    ],
)
def test_all_data_lies_within_the_axes_and_all_text_on_the_canvas(make_entry, make_metrics, size, layers):
    metrics = [line | {"speedup": line["speedup"] * size.get("speed", 1.0)} for line in make_metrics()]
    for figure in drawn_figures(drawings(read(stretched(make_entry(layers=layers), **size)), metrics)).values():
        all_is_shown(figure)


def test_figures_leave_no_global_state(make_entry, make_metrics):
    before = dict(matplotlib.rcParams)
    drawn_figures(drawings(read(make_entry()), make_metrics()))
    assert dict(matplotlib.rcParams) == before


def test_no_module_of_the_report_uses_pyplot():
    for source in Path(jaxspec.report.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
        imported = [f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
        imported += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        assert not [name for name in imported if "pyplot" in name], source


def test_public_names_have_docstrings():
    assert all(getattr(jaxspec.report, name).__doc__ for name in jaxspec.report.__all__)


def test_pareto_front_by_hand():
    points = [(3.0, 0.5), (1.0, 0.2), (2.0, 0.6), (2.0, 0.4), (4.0, 0.6), (5.0, 0.9)]
    # (3, .5) loses to (2, .6); (2, .4) too; (4, .6) is as good as (2, .6) and dearer.
    assert pareto_front(points) == [(1.0, 0.2), (2.0, 0.6), (5.0, 0.9)]
    assert pareto_front([]) == []


def test_pareto_front_against_all_pairs():
    points = [tuple(point) for point in np.random.default_rng(3).integers(0, 12, (60, 2)).astype(float)]

    def beaten(point):
        return any(other[0] <= point[0] and other[1] >= point[1] and other != point for other in points)

    assert pareto_front(points) == sorted({point for point in points if not beaten(point)})
