"""What reproductions share: rows, spreads, simplest predictors."""

import pytest
from rich.console import Console

from experiments.papers import reproduction


def row(paper_value, model_value, status="predicted", metric="speedup", **conditions):
    return reproduction.table_row(
        "paper",
        "table1",
        conditions,
        metric=metric,
        unit="x",
        paper_value=paper_value,
        model_value=model_value,
        status=status,
    )


ROWS = [
    row(2.0, 2.2, board="a"),
    row(-4.0, -3.0, board="b"),
    row(5.0, 5.0, "input", board="a"),
    row(8.0, 6.0, "calibrated"),
]


def test_rows_and_spreads():
    assert [r["relative_error"] for r in ROWS] == pytest.approx([0.1, 0.25, 0.0, 0.25])
    spreads = reproduction.spread_by_status(ROWS)
    assert list(spreads) == ["input", "calibrated", "predicted"]
    assert spreads["predicted"] == {"cells": 2, "median": pytest.approx(0.175), "max": 0.25}
    assert "input" not in reproduction.spread_by_status(ROWS[:2])


def test_simplest_predictors():
    assert reproduction.predictor_errors(ROWS, lambda r: 2.0) == pytest.approx([0.0, 1.5, 0.6, 0.75])
    some = [
        row(1.0, 1.0, board="a"),
        row(2.0, 2.0, board="b"),
        row(6.0, 6.0, board="a"),
        row(9.0, 9.0, metric="length"),
    ]
    # The median of 1, 2 and 6, and the other metric's own.
    assert reproduction.constant_errors(some) == pytest.approx([1.0, 0.0, 2 / 3, 0.0])
    # 3.5 for board a.
    assert reproduction.constant_errors(some[:3], "board") == pytest.approx([2.5, 0.0, 2.5 / 6])
    better, mixed = {"median": 0.1, "max": 0.3}, {"median": 0.05, "max": 0.4}
    assert reproduction.beats(better, {"median": 0.2, "max": 0.31})
    assert not reproduction.beats(better, mixed)
    assert not reproduction.beats(better, better)


def test_comments_in_a_source_are_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,value,status\na,1,printed\nb,2,commented\n", encoding="utf-8")
    assert reproduction.printed_cells(path) == [{"model": "a", "value": "1", "status": "printed"}]
    path.write_text("model,value\na,1\nb,2\n", encoding="utf-8")
    assert len(reproduction.printed_cells(path)) == 2


def test_printing_says_what_is_no_prediction_and_what_is_not_reproduced(capsys):
    summary = {
        "cells": 4,
        "covered": 4,
        "relative_error": reproduction.spread_by_status(ROWS),
        "simplest_predictors": {"two": {"cells": 4, "median": 0.1, "max": 0.2}},
        "fitted": {"clock": 2.0},
        "beats_simplest": False,
    }
    result = {"rows": ROWS, "summary": {"paper/table1": summary}}
    reproduction.show_tables(Console(width=140), result, label=lambda r: r["conditions"].get("board", "none"))
    text = capsys.readouterr().out
    assert "table1: 4 of 4 cells" in text
    assert "input: median 0.00%, max 0.00% (1 cells): no prediction" in text
    assert "NOT reproduced: a simpler predictor is as good; fitted: clock = 2" in text
    reproduction.show_summary(Console(width=140), summary | {"tested": False, "fitted": {}})
    assert "no test: as many fitted numbers as cells; fitted: nothing" in capsys.readouterr().out
    reproduction.show_summary(Console(width=140), summary | {"beats_simplest": True}, agrees="agrees")
    assert "agrees; fitted" in capsys.readouterr().out
