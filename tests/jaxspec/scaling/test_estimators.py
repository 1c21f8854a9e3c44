"""Estimators against enumeration of all subsets."""

import itertools

import numpy as np
import pytest

from jaxspec.scaling import (
    best_of_n,
    best_of_n_rate,
    majority_answer,
    majority_rate,
    pass_at_n,
)

SAMPLES = 7


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(4)
    correct = rng.random((5, SAMPLES)) < np.array([0.0, 0.2, 0.5, 0.8, 1.0])[:, None]
    scores = np.round(rng.normal(size=(5, SAMPLES)) + correct, 0)  # many ties
    scores[1, 2], scores[2, :] = np.nan, 1.0
    return scores, correct


@pytest.mark.parametrize("n", [1, 3, SAMPLES])
def test_pass_at_n(found, n):
    _, correct = found
    subsets = list(itertools.combinations(range(SAMPLES), n))
    wanted = [np.mean([row[list(subset)].any() for subset in subsets]) for row in correct]
    np.testing.assert_allclose(pass_at_n(correct, n), wanted, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, SAMPLES])
def test_best_of_n(found, n):
    scores, correct = found
    filled = np.nan_to_num(scores, nan=-np.inf)

    def expected(row, right):
        rates = []
        for subset in itertools.combinations(range(SAMPLES), n):
            members = np.array(subset)
            best = members[row[members] == row[members].max()]
            rates.append(right[best].mean())
        return np.mean(rates)

    wanted = [expected(row, right) for row, right in zip(filled, correct, strict=True)]
    np.testing.assert_allclose(best_of_n_rate(scores, correct, n), wanted, atol=1e-12)


def test_majority_against_enumeration():
    answers = np.array([[1, 1, 2, 3, -1, 2, 1], [2, 2, 2, 1, 1, 1, -1], [-1] * 7, [4, 5, 6, 7, 8, 9, 1]])

    def expected(row, right, n):
        wins = []
        for order in itertools.permutations(range(SAMPLES), n):
            wins.append(majority_answer([None if row[i] < 0 else int(row[i]) for i in order]) == right)
        return np.mean(wins)

    for n in (1, 3, 4):
        wanted = [expected(row, 1, n) for row in answers]
        got = majority_rate(answers, np.ones(4, int), n)
        assert np.all(np.abs(got - wanted) < 4 * np.sqrt(0.25 / 400)), (n, got, wanted)
        assert got[2] == 0


def test_choosing():
    assert best_of_n(np.array([1.0, np.nan, 3.0, 3.0])) == 2
    assert best_of_n(np.array([np.nan, np.nan])) == 0
    assert majority_answer(["b", None, "a", "a", "b"]) == "b"
    assert majority_answer([None]) is None
    with pytest.raises(ValueError, match="no sample"):
        best_of_n(np.array([]))
