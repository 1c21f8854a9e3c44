"""Rounds of a clock that is not the machine's, and what repeats say."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.host.stopwatch import interleave, noise_of, repeat_statistics


def test_calls_are_warmed_then_timed_in_changing_order():
    now, order, advanced = [0.0], [], []

    def calls(name, *seconds):
        def call(took):
            now[0] += took
            order.append((name, took))
            return jnp.asarray(took)

        return [lambda took=took: call(took) for took in seconds]

    blocks = [{"a": calls("a", 1.0, 3.0), "b": calls("b", 7.0)}, {"c": calls("c", 0.5)}]
    found = interleave(blocks, 6, advance=lambda: advanced.append(1), clock=lambda: now[0])
    assert found.first_s == {"a": [1.0, 3.0], "b": [7.0], "c": [0.5]}
    np.testing.assert_array_equal(found.seconds["a"], [[1.0, 3.0]] * 6)
    np.testing.assert_array_equal(found.seconds["c"], [[0.5]] * 6)
    assert [float(one) for one in found.results["a"]] == [1.0, 3.0]
    assert len(advanced) == 3 + 6 * 2
    # What belongs to one name stays together, and a block ends before the next begins.
    rounds = [order[4 + 4 * i : 8 + 4 * i] for i in range(6)]
    forms = {tuple(name for name, _ in one) for one in rounds}
    assert forms == {("a", "a", "b", "c"), ("b", "a", "a", "c")}


def test_spread_is_the_median_and_nine_tenths():
    np.testing.assert_allclose(repeat_statistics(np.arange(101.0)), (50.0, 5.0, 95.0))
    assert repeat_statistics(np.array([2.0, np.nan, 4.0])).median == 3.0
    assert all(math.isnan(x) for x in repeat_statistics(np.array([np.nan])))


def test_noise_is_the_error_of_the_median_and_not_of_an_outlier():
    rng = np.random.default_rng(0)
    samples = 3.0 + 0.3 * rng.standard_normal((2000, 25))
    medians = np.median(samples, axis=1)
    told = np.median([noise_of(row) for row in samples])
    assert told == pytest.approx(np.std(medians) / 3.0, rel=0.1)
    quiet = np.array([1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 50.0])
    assert noise_of(quiet) < 0.01
    assert noise_of(np.array([0.86, 0.85, 0.48])) > 0.1  # too few to call one of them an outlier
    assert math.isinf(noise_of(np.array([1.0, 1.0])))
