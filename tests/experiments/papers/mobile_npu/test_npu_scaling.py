"""Figures 5 and 10 from made-up results: what is drawn, and what is said of them."""

import pytest

from experiments.papers.mobile_npu.scaling import METHODS, PHONES, Line, scaling_statements
from jaxspec.results import measured, predicted
from jaxspec.studies.scale.result import Curve, CurvePoint, NetworkCurves, PlanRow, ScaleResult

BUDGETS = (1, 4, 16)


def line(name, accuracies, step_s, *, fits=True):
    """A network whose samples take as long as one; the second phone is twice as fast."""
    points = [
        CurvePoint(
            samples=samples,
            accuracy=measured(accuracy),
            low=measured(accuracy - 0.05),
            high=measured(accuracy + 0.05),
            gain=measured(accuracy - accuracies[0]),
            gain_low=measured(accuracy - accuracies[0] - 0.1),
            gain_high=measured(accuracy - accuracies[0] + 0.1),
        )
        for samples, accuracy in zip(BUDGETS, accuracies, strict=True)
    ]
    results = []
    for phone in range(len(PHONES)):
        plans = [
            PlanRow(
                model=name,
                method=method,
                samples=point.samples,
                batch=1,
                accuracy=point.accuracy,
                low=point.low,
                high=point.high,
                decode_s=predicted(step_s / (phone + 1)),
                fits=predicted(fits),
            )
            for method in METHODS
            for point in points
        ]
        curves = [Curve(method=method, points=points) for method in METHODS]
        results.append(ScaleResult(networks=[NetworkCurves(name=name, curves=curves)], plans=plans))
    return Line(f"network {name}", name, results)


@pytest.fixture(scope="module")
def found():
    return {
        "easy": (line("a", (0.3, 0.6, 0.8), 1.0), line("b", (0.55, 0.7, 0.9), 2.0)),
        "hard": (line("c", (0.1, 0.15, 0.15), 1.0), line("d", (0.4, 0.4, 0.45), 1.5)),
    }


def test_statements_by_hand(found):
    rows = scaling_statements(found)
    holds = {row["says"]: row["holds"] for row in rows}
    assert [
        holds[f"{task}, network {name}: accuracy rises with the budget"]
        for task, name in (("easy", "a"), ("easy", "b"), ("hard", "c"), ("hard", "d"))
    ] == [True, True, False, False]
    matched = [row for row in rows if row["where"] == "Fig. 10"]
    assert [row["holds"] for row in matched] == [True] * 4 + [False] * 4
    assert matched[0]["ours"] == "4 samples: 60.0% in 1.00 s, for 55.0% in 2.00 s"
    assert matched[-1]["ours"] == "15.0% at most, for 40.0% in 0.75 s"


def test_a_network_that_is_slower_matches_nothing(found):
    slow = {"easy": (line("a", (0.3, 0.6, 0.8), 3.0), found["easy"][1])}
    assert not any(row["holds"] for row in scaling_statements(slow) if row["where"] == "Fig. 10")
