"""Errors, simplest predictors, printed numbers, and the rule by which a table is reproduced or not."""

import pytest

from experiments.reproduce import paper, run
from experiments.reproduce.paper import Modelled, PrintedTable


def row(paper_value, model_value, status="predicted", metric="speedup", doubt="", **conditions):
    error = paper.relative_error(model_value, paper_value)
    names = ("paper_value", "model_value", "relative_error", "status", "metric", "doubt", "conditions")
    return dict(zip(names, (paper_value, model_value, error, status, metric, doubt, conditions), strict=True))


ROWS = [
    row(2.0, 2.2, board="a"),
    row(-4.0, -3.0, board="b"),
    row(5.0, 5.0, "input", board="a"),
    row(8.0, 6.0, "calibrated"),
]


def table(**simplest):
    return PrintedTable("t", "T", lambda solved: lambda cell: Modelled(1.0, "input"), (), simplest)


def test_relative_errors_and_spreads():
    assert [r["relative_error"] for r in ROWS] == pytest.approx([0.1, 0.25, 0.0, 0.25])
    spreads = paper.spread_by_status(ROWS)
    assert list(spreads) == ["input", "calibrated", "predicted"]
    assert spreads["predicted"] == {"cells": 2, "median": pytest.approx(0.175), "max": 0.25}
    assert "input" not in paper.spread_by_status(ROWS[:2])
    # A printed 0 has no relative error, unless it is met.
    assert paper.relative_error(0.1, 0.0) is None
    assert paper.relative_error(0.0, 0.0) == 0.0
    assert paper.spread_of([None, 0.1, 0.3]) == {"cells": 3, "median": pytest.approx(0.2), "max": 0.3}
    assert paper.spread_of([None]) == {"cells": 1, "median": None, "max": None}


def test_simplest_predictors():
    some = [
        row(1.0, 1.0, board="a"),
        row(2.0, 2.0, board="b"),
        row(6.0, 6.0, board="a"),
        row(9.0, 9.0, metric="length"),
    ]
    predict = paper.constant()(some)
    assert predict(row(1.0, 1.0, metric="power")) is None
    # The median of 1, 2 and 6, and the other metric's own.
    assert [predict(r) for r in some] == [2.0, 2.0, 2.0, 9.0]
    predict = paper.constant("board")(some[:3])
    assert [predict(r) for r in some[:3]] == [3.5, 2.0, 3.5]
    better, mixed = {"median": 0.1, "max": 0.3}, {"median": 0.05, "max": 0.4}
    assert paper.beats(better, {"median": 0.2, "max": 0.31})
    assert not paper.beats(better, mixed)
    assert not paper.beats(better, better)
    assert not paper.beats(better, {"median": None, "max": None})


def test_verdicts():
    summarise = lambda rows, **simplest: run.summarise(table(**simplest), rows, cells=9, fitted={})
    # Errors of 0 and 15 % against 10 and 25 %.
    found = summarise(ROWS, near=paper.each(lambda r: 2.0 if r["paper_value"] == 2.0 else -4.6))
    assert not found["reproduced"]
    assert found["verdict"] == "NOT reproduced: a simpler predictor is as good for speedup (near)"
    assert found["simplest_predictors"]["near"] == {
        "cells": 2,
        "median": pytest.approx(0.075),
        "max": pytest.approx(0.15),
        "model": {"cells": 2, "median": pytest.approx(0.175), "max": 0.25},
        "beaten": False,
    }
    # A smaller largest error alone is not enough: medians of 17.5 and 10 %.
    assert not summarise(
        [*ROWS, row(1.0, 1.3)], most=paper.each(lambda r: r["paper_value"] * (1.4 if r["paper_value"] < 0 else 1.1))
    )["reproduced"]
    assert summarise(ROWS, ten=paper.each(lambda r: 10.0))["reproduced"]
    # A predictor that knows one cell alone is compared there alone; a cell that none knows is not judged.
    one = paper.each(lambda r: 10.0 if r["paper_value"] == 2.0 else None)
    assert not summarise(ROWS, one=one)["reproduced"]
    assert summarise(ROWS, one=one, ten=paper.each(lambda r: 10.0))["reproduced"]
    assert not summarise(ROWS)["reproduced"]
    # Neither calibrated nor input cells are reproduced, however good, nor cells in doubt.
    good = [row(2.0, 2.0, "calibrated"), row(3.0, 3.0, "input"), row(4.0, 4.0, doubt="a slip")]
    found = summarise(good, ten=paper.each(lambda r: 10.0))
    assert not found["reproduced"]
    assert found["verdict"] == "NOT reproduced: no cell is predicted, 1 are in doubt"
    # Each metric has to be reproduced.
    mixed = [*ROWS[:2], row(10.0, 10.5, metric="length")]
    found = summarise(mixed, ten=paper.each(lambda r: 10.0))
    assert [found["by_metric"][metric]["reproduced"] for metric in ("speedup", "length")] == [True, False]
    assert not found["reproduced"]
    assert found["verdict"].endswith("as good for length (ten); reproduced: speedup")


def test_a_predictor_that_repeats_the_cell_is_no_peer():
    alone = row(4.0, 4.4, metric="power")
    rows = [row(1.0, 1.2), row(2.0, 2.2), alone]
    assert [found["metric"] for found, _ in paper.predictions(paper.constant(), rows)] == ["speedup", "speedup"]
    # One that needs no cell says what it says.
    assert len(paper.predictions(paper.each(lambda r: 4.0), rows)) == 3
    found = run.summarise(table(constant=paper.constant()), [alone], cells=1, fitted={})
    assert found["by_metric"]["power"]["simplest_predictors"] == {}
    assert found["verdict"] == "NOT reproduced: a simpler predictor is as good for power (none is given)"
    found = run.summarise(table(constant=paper.constant(), six=paper.each(lambda r: 6.0)), [alone], cells=1, fitted={})
    assert found["reproduced"]
