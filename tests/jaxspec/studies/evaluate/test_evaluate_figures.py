"""Figures of `jaxspec evaluate`, of its one configuration."""

import matplotlib

from jaxspec.studies.evaluate.result import EvaluateResult
from jaxspec.studies.evaluate.view import figures


def test_the_one_draft_is_drawn(make_entry):
    entry = make_entry()
    entry["configurations"] = {"given": entry["configurations"]["tuned"]}
    drawn = {name: draw() for name, draw in figures(EvaluateResult.from_plain(entry)).items()}
    assert drawn.pop("stopwatch") is None  # nothing was timed
    assert list(drawn) == ["tokens", "roofline", "operator_time"]
    for figure in drawn.values():
        words = " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))
        assert "given" in words


def test_what_has_no_data_is_not_drawn():
    assert all(draw() is None for draw in figures(EvaluateResult.from_plain({"device": "rtx-4090"})).values())
