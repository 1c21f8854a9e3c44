import pytest
from made_results import read
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jaxspec.errors import InputError
from jaxspec.report.page import drawn as drawn_figures
from jaxspec.studies.tune.view import drawings, figures

pytestmark = pytest.mark.study

ALL = {"acceptance", "knobs", "convergence", "tokens", "roofline", "operator_time"}


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
def test_text_neither_leaves_the_figure_nor_overlaps(make_entry, make_metrics, name):
    figure = drawn_figures(drawings(read(make_entry(layers=5)), make_metrics()))[name]
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


def test_damaged_steps_take_their_own_figure_alone(make_entry, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{")
    by_name = figures(read(make_entry(layers=2)), tmp_path)
    assert by_name["knobs"]() is not None
    with pytest.raises(InputError, match="only the figure of the steps is lost"):
        by_name["convergence"]()
