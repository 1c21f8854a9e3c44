"""The gain of equal slopes is the best move of all knobs less the best move of all alike, and noise is taken off it."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from experiments.coding_gain import log_gain, within_range, without_noise

GROWTH = 4.0


def test_log_gain_is_what_moving_each_knob_adds_to_moving_all_alike():
    rng = np.random.default_rng(0)
    loss, gain = rng.lognormal(0.0, 0.8, 6), rng.uniform(0.5, 2.0, 6)
    change = lambda moves: -np.sum(gain * moves - loss * np.expm1(GROWTH * moves) / GROWTH)
    apart, alike = minimize(change, np.zeros(6)), minimize(lambda move: change(np.full(6, move[0])), np.zeros(1))
    assert log_gain(loss, gain, GROWTH) == pytest.approx(alike.fun - apart.fun, abs=1e-6)
    assert log_gain(2.0 * gain, gain, GROWTH) == pytest.approx(0.0, abs=1e-12)


def test_noise_of_passes_is_no_gain():
    rng = np.random.default_rng(1)
    truth, gain = np.exp(rng.normal(0.0, 0.5, 4000)), np.ones(4000)
    whole, less_noise = without_noise(truth * rng.lognormal(0.0, 0.3, (8, 4000)), gain, GROWTH)
    expected = log_gain(truth, gain, GROWTH)
    assert whole > expected + 2.0
    assert less_noise == pytest.approx(expected, rel=0.03)
    assert math.isclose(without_noise(np.tile(truth, (2, 1)), gain, GROWTH)[1], expected)


def test_many_places_gain_as_much_and_an_end_gains_less():
    rng = np.random.default_rng(2)
    loss, gain, at = rng.lognormal(0.0, 0.3, 50), np.ones(50), np.full(50, 0.5)
    free = log_gain(loss, gain, GROWTH)
    assert within_range(loss, gain, GROWTH, at, np.linspace(0, 1, 2001)) == pytest.approx(free, rel=1e-3)
    assert 0 < within_range(loss, gain, GROWTH, at, np.linspace(0, 0.52, 1001)) < 0.9 * free
