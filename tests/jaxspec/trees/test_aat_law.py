import numpy as np
import pytest
from scipy.optimize import curve_fit

from jaxspec.trees.aat_law import curve_interval, fit_aat_law, r_squared


def curve(x, a=0.7, b=0.9, c=-1.3):
    return a + b * np.log(np.asarray(x, np.float64) - c)


@pytest.mark.parametrize(("a", "b", "c"), [(0.7, 0.9, -1.3), (1.9, 0.41, 2.7), (-3.0, 2.2, -14.0), (2.0, -0.3, 0.4)])
def test_exact_points_give_the_law_back(a, b, c):
    x = np.array([3, 5, 11, 24, 61])
    fit = fit_aat_law(x, curve(x, a, b, c))
    np.testing.assert_allclose([fit.law.intercept, fit.law.log_slope, fit.law.shift], [a, b, c], rtol=1e-5)
    assert not fit.shift_at_bound
    assert fit.residual_scatter < 1e-6
    assert fit.degrees_of_freedom == 2
    held_out = np.array([4, 17, 40])
    assert r_squared(fit.law, held_out, curve(held_out, a, b, c)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_and_errors_agree_with_curve_fit(weighted):
    rng = np.random.default_rng(4)
    x = np.array([2, 4, 7, 7, 13, 25, 38, 64])
    error = rng.uniform(0.01, 0.05, x.size)
    tokens = curve(x) + error * rng.standard_normal(x.size)
    model = lambda x, a, b, c: a + b * np.log(x - c)
    sigma = dict(sigma=error, absolute_sigma=True) if weighted else {}
    expected, covariance = curve_fit(model, x, tokens, p0=[0.7, 0.9, -1.0], **sigma)
    fit = fit_aat_law(x, tokens, standard_error=error if weighted else None)
    np.testing.assert_allclose([fit.law.intercept, fit.law.log_slope, fit.law.shift], expected, rtol=1e-4)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=2e-3)
    # Interval: 1.959964 standard errors where they are given, t with 5 degrees (2.570582) where not.
    half = (fit.intervals[1, 1] - fit.intervals[1, 0]) / 2
    assert half / fit.standard_errors.log_slope == pytest.approx(1.959964 if weighted else 2.570582, rel=1e-5)


@pytest.mark.network
def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(7)
    x = np.array([2, 4, 8, 15, 27, 44, 64])
    repeats, hits, band = 200, np.zeros(3), 0
    for _ in range(repeats):
        fit = fit_aat_law(x, curve(x) + 0.02 * rng.standard_normal(x.size), confidence=0.8)
        hits += (fit.intervals[:, 0] <= [0.7, 0.9, -1.3]) & (fit.intervals[:, 1] >= [0.7, 0.9, -1.3])
        at = curve_interval(fit, [20.0])
        band += bool(at.lower[0] <= curve(20.0) <= at.upper[0])
    # Four standard errors of a count of 200 at 0.8 are 0.113.
    assert np.all(np.abs(hits / repeats - 0.8) < 0.113)
    assert abs(band / repeats - 0.8) < 0.113
