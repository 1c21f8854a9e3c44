import jax.numpy as jnp
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


def test_standard_errors_are_the_spread_of_repeated_fits():
    rng = np.random.default_rng(0)
    # A wide loss is plain least squares.
    fits = [
        fit(predict, PARAMETERS, {"work": w}, t, loss_scale=10.0) for w, t in (measured(rng, 60) for _ in range(25))
    ]
    for name in ("latency", "rate"):
        spread = np.std([f.estimates[name] for f in fits])
        assert np.mean([f.standard_errors[name] for f in fits]) == pytest.approx(spread, rel=0.4)
    pairs = np.log([[f.estimates["latency"], f.estimates["rate"]] for f in fits])
    assert np.mean([f.correlation[0, 1] for f in fits]) == pytest.approx(np.corrcoef(pairs.T)[0, 1], abs=0.3)
    assert np.mean([f.scatter for f in fits]) == pytest.approx(0.04, rel=0.15)


def test_repeating_every_row_as_a_group_leaves_the_errors():
    work, times = measured(np.random.default_rng(1), 80)
    once = fit(predict, PARAMETERS, {"work": work}, times)
    again = {"work": np.tile(work, 5)}
    grouped = fit(predict, PARAMETERS, again, np.tile(times, 5), groups=np.tile(np.arange(80), 5))
    alone = fit(predict, PARAMETERS, again, np.tile(times, 5))
    for name in ("latency", "rate"):
        assert grouped.standard_errors[name] == pytest.approx(once.standard_errors[name], rel=1e-3)
        assert alone.standard_errors[name] == pytest.approx(once.standard_errors[name] / np.sqrt(5), rel=1e-3)


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


def test_double_precision_only_while_fitting():
    work, times = measured(np.random.default_rng(5), 20)
    fit(predict, PARAMETERS, {"work": work}, times)
    assert jnp.asarray(1.5).dtype == jnp.float32
