"""The delta method: exact for products of powers, near Monte Carlo elsewhere; probabilities of gains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.analysis.uncertainty.cycle_errors import LogNormal, delta_method, probability_above


def test_products_of_powers_are_exact():
    # log of the result is 0.3 a - 2 * 0.1 b + const: standard deviation sqrt(0.09 + 0.04).
    found = delta_method(lambda z: {"y": 5.0 * jnp.exp(0.3 * z[0]) / jnp.exp(0.1 * z[1]) ** 2}, 2)["y"]
    assert float(found.value) == pytest.approx(5.0)
    assert float(found.log_deviation) == pytest.approx(np.sqrt(0.13), rel=1e-5)
    low, high = found.ends()
    assert float(high) == pytest.approx(5.0 * np.exp(1.6448536 * np.sqrt(0.13)), rel=1e-5)
    assert float(low * high) == pytest.approx(25.0, rel=1e-5)


def test_sums_are_near_monte_carlo():
    sizes = jnp.array([[3.0, 1.0], [2.0, 7.0]])
    metrics = lambda z: jnp.sum(sizes * jnp.exp(0.12 * z)[None], axis=-1)
    found = delta_method(metrics, 2)
    drawn = jax.vmap(metrics)(jax.random.normal(jax.random.key(3), (20_000, 2)))
    for index in range(2):
        low, high = np.quantile(np.asarray(drawn[:, index]), [0.05, 0.95])
        ends = found.ends()
        assert float(ends[0][index]) == pytest.approx(low, rel=0.02)
        assert float(ends[1][index]) == pytest.approx(high, rel=0.02)


def test_probability_of_a_gain():
    deviation = 0.1
    found = LogNormal(jnp.exp(jnp.array([0.1, 0.0, -0.2])), jnp.full(3, deviation))
    # One, none and two standard deviations away from no gain.
    np.testing.assert_allclose(probability_above(found), [0.8413447, 0.5, 0.0227501], rtol=1e-5)
    assert float(probability_above(LogNormal(jnp.asarray(1.0), jnp.asarray(0.0)))) == 0.5
