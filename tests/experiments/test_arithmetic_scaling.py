"""Accuracy against the number of samples: all four methods run, on one problem."""

from experiments.arithmetic_scaling import BUDGETS, measure
from jaxspec.runs.progress import Reporter


def test_all_methods_answer_a_problem():
    """The judge of beam search was given samples where it reads texts."""
    found = measure(1, (3, 3), 0, Reporter())
    assert {(row["method"], row["samples"]) for row in found["rows"]} == {
        (method, budget) for method in ("pass", "majority", "judge", "beam") for budget in BUDGETS
    }
    assert all(0 <= row["accuracy"]["ratio"] <= 1 for row in found["rows"])
