"""Designs drawn first: none is better than the proposal, those climbed from differ, and the same seed draws the same."""

import dataclasses

import numpy as np
import pytest

from jaxspec.studies.codesign import run
from jaxspec.studies.codesign.problem import make_problem
from jaxspec.studies.codesign.search import best_that_differ, draw, harden, merit
from tests.jaxspec.studies.codesign.test_codesign import config_of

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def problem():
    return make_problem(config_of(draws=256))


def test_the_best_that_differ(problem):
    drawn = draw(problem, 256, np.random.default_rng(3))
    chosen = best_that_differ(problem, drawn, 6)
    places = problem.variables.places(chosen)
    apart = np.abs(places[:, None] - places[None]).max(axis=2)
    assert np.all(apart[~np.eye(6, dtype=bool)] >= 0.1)
    np.testing.assert_array_equal(chosen[0], drawn.values[0])
    # Of fewer draws all come, neighbours or not.
    few = dataclasses.replace(drawn, values=np.repeat(drawn.values[:1], 3, axis=0), merits=drawn.merits[:3])
    assert len(best_that_differ(problem, few, 6)) == 3


def test_the_proposal_is_no_worse_than_the_best_draw(problem):
    drawn = run.drawn_designs(problem)
    poor = np.zeros((1, len(problem.before)))  # a climb that ended at the least of everything
    kept = harden(problem, poor, drawn=drawn, allowed=len(drawn) + 1)
    assert merit(problem.values(kept.values[None]))[0] <= merit(problem.values(drawn)).min()
