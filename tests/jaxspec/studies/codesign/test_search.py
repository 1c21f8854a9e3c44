"""Climbing together: a problem whose optimum is known, and starts that do not notice each other."""

import numpy as np

from jaxspec.studies.codesign.search import climb


def smooth(places):
    """−(x0 + 2 x1) under x0^2 + x1^2 <= 0.5: the optimum is sqrt(0.1) (1, 2)."""
    x = np.asarray(places, float)
    values = np.stack([-(x[:, 0] + 2 * x[:, 1]), (x**2).sum(axis=1) - 0.5], axis=1)
    slopes = np.stack([np.broadcast_to([-1.0, -2.0, 0.0], x.shape), 2 * x], axis=1)
    return values, slopes


def flat(places):
    values, slopes = smooth(np.concatenate([places[:, :2], np.zeros((len(places), 1))], axis=1))
    return values, slopes


STARTS = np.array([[0.9, 0.8, 0.3], [0.1, 0.2, 0.7], [0.5, 0.0, 0.1]])


def test_every_start_finds_the_optimum():
    for one in climb(flat, STARTS, iterations=50):
        np.testing.assert_allclose(one.place[:2], np.sqrt(0.1) * np.array([1, 2]), atol=2e-3)
        assert one.path[-1][1] <= 1e-4
