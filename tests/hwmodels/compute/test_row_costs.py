"""Measured row costs: exact where they were measured, and no more than the form at temperature 1."""

import itertools

import jax
import numpy as np
import pytest

from hwmodels.compute.roofline import RowCosts, row_factor

COSTS = RowCosts(
    weights=(1e4, 3e6, 5e7),
    rows=(1.0, 2.0, 3.0, 7.0, 8.0, 40.0),
    factors=((0.4, 1.1, 1.0, 1.3, 0.9, 1.0), (0.5, 0.9, 1.0, 1.2, 0.8, 1.0), (0.7, 1.0, 1.0, 1.0, 0.9, 0.95)),
)


def test_measured_places_are_exact_at_temperature_0():
    for (i, size), (j, rows) in itertools.product(enumerate(COSTS.weights), enumerate(COSTS.rows)):
        assert float(row_factor(COSTS, rows, size)) == pytest.approx(COSTS.factors[i][j], rel=1e-6)


def test_temperature_takes_the_steps_away():
    assert float(row_factor(COSTS, 1.0, 1e4, 1.0)) == 1.0
    assert float(row_factor(COSTS, 1.0, 1e4, 0.5)) == pytest.approx(0.4**0.5, rel=1e-6)


def test_gradient(x64):
    """Against differences, off the measured places; none at temperature 1."""
    for rows, size, temperature in ((1.4, 3e4, 0.0), (7.6, 8e6, 0.3), (33.0, 2e7, 0.7), (5.0, 77.0, 1.0)):
        log_factor = lambda x, size=size, t=temperature: np.log(row_factor(COSTS, x, size, t))
        slope = jax.grad(lambda x, size=size, t=temperature: jax.numpy.log(row_factor(COSTS, x, size, t)))(rows)
        assert float(slope) == pytest.approx((log_factor(rows + 1e-4) - log_factor(rows - 1e-4)) / 2e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "rows", "factors", "message"),
    [
        ((), (1.0,), (), "weights are"),
        ((2.0, 1.0), (1.0,), ((1.0,), (1.0,)), "weights are"),
        ((1.0,), (2.0, 2.0), ((1.0, 1.0),), "rows are"),
        ((1.0,), (1.0, 2.0), ((1.0,),), "factors have sizes"),
        ((1.0,), (1.0,), ((0.0,),), "positive"),
        ((1.0,), (1.0,), ((float("nan"),),), "positive"),
    ],
)
def test_what_is_refused(weights, rows, factors, message):
    with pytest.raises(ValueError, match=message):
        RowCosts(weights, rows, factors)
