"""The largest of many values: those of `top_k`, without sorting all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.speculate.steps import largest, top_gap


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_are_the_first_of_a_stable_sort(count):
    values = np.random.default_rng(count).integers(-3, 3, (4, 3, 7)).astype(np.float32)  # with ties
    values[0, 0, 2:] = -np.inf
    order = np.argsort(-values, axis=-1, kind="stable")[..., :count]
    found, places = jax.jit(largest, static_argnums=1)(jnp.asarray(values), count)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(found, np.take_along_axis(values, order, axis=-1))


def test_the_gap_of_a_large_vocabulary_is_that_of_a_small_one():
    logits = np.random.default_rng(3).standard_normal((2, 5, 1 << 14)).astype(np.float32)
    logits[0, 0, [7, 16000]] = 9.0  # a tie
    logits[0, 1] = -np.inf
    logits[0, 1, 5] = 2.0
    logits[0, 2, 11] = np.nan
    gap = np.asarray(jax.jit(top_gap)(logits))
    second, first = np.sort(logits, axis=-1)[..., -2:].transpose(2, 0, 1)
    np.testing.assert_array_equal(gap, first - second)
    np.testing.assert_array_equal(gap[0, :3], [0.0, np.inf, np.nan])
