import numpy as np
import pytest

from hwmodels.analysis.calibration.least_squares import Parameter, fit

PARAMETERS = [Parameter("latency", 1.0, 1e-3, 1e3), Parameter("rate", 1.0, 1e-3, 1e3)]


def predict(values, conditions):
    return values["latency"] + conditions["work"] / values["rate"]


def measured(rng, rows=400, noise=0.04):
    work = rng.uniform(1, 90, rows)
    return work, (2.7 + work / 5.3) * np.exp(noise * rng.standard_normal(rows))


def test_recovers_the_parameters_exactly():
    work = np.array([1.0, 3.0, 10.0, 40.0])
    found = fit(predict, PARAMETERS, {"work": work}, 2.7 + work / 5.3)
    assert found.converged
    assert found.estimates == pytest.approx({"latency": 2.7, "rate": 5.3}, rel=1e-6)
    np.testing.assert_allclose(found.predicted, 2.7 + work / 5.3, rtol=1e-6)


def test_a_few_wild_rows_do_little():
    work, times = measured(np.random.default_rng(2), noise=0.01)
    times[::20] *= 3
    found = fit(predict, PARAMETERS, {"work": work}, times)
    assert found.estimates == pytest.approx({"latency": 2.7, "rate": 5.3}, rel=0.02)


def test_bounds_hold_and_are_named():
    work, times = measured(np.random.default_rng(3))
    found = fit(predict, [PARAMETERS[0], Parameter("rate", 1.0, 0.1, 4.0)], {"work": work}, times)
    assert found.estimates["rate"] == pytest.approx(4.0, rel=1e-2)
    assert found.at_bound == ("rate",)
    assert np.isnan(found.standard_errors["rate"])
    assert found.standard_errors["latency"] > 0


def test_bad_input():
    with pytest.raises(ValueError, match="start"):
        Parameter("x", 1.0, 2.0, 3.0)
    for conditions, times, message in (
        ([1.0, 2.0], [1.0, 2.0], "more conditions"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "one length"),
        ([1.0, 2.0, 3.0], [1.0, -2.0, 1.0], "positive"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(predict, PARAMETERS, {"work": conditions}, times)
