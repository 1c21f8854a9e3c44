"""Hotness by hand, step by step, and shared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec.speculate.hotness as of_hotness

# Programs: operation by operation a text is dozens.
count_choices = jax.jit(of_hotness.count_choices, static_argnums=2)
faded, hotness_rank = jax.jit(of_hotness.faded), jax.jit(of_hotness.hotness_rank)
hotness_before = jax.jit(of_hotness.hotness_before, static_argnums=1)
recency, shared_hotness = (
    jax.jit(function, static_argnums=1) for function in (of_hotness.recency, of_hotness.shared_hotness)
)

RNG = np.random.default_rng(2)
CHOSEN = jnp.asarray(RNG.integers(5, size=(3, 9, 2, 2)), jnp.int32)  # batch, token, layer, chosen


def test_counts_by_hand():
    chosen = jnp.asarray([[[[0, 2]], [[2, 3]], [[1, 2]]]])
    counts = count_choices(chosen, jnp.asarray([[1.0, 0.5, 0.0]]), 4)
    np.testing.assert_array_equal(counts, [[[1, 0, 1.5, 0.5]]])


@pytest.mark.network
def test_hotness_along_a_text_is_that_of_window_after_window():
    along = hotness_before(CHOSEN, 5, 0.7)
    hotness = jnp.zeros((2, 3, 5))
    for start, places in ((0, 4), (4, 1), (5, 3)):
        np.testing.assert_allclose(along[:, :, start], hotness, rtol=1e-5, atol=1e-6)
        valid = jnp.full(3, places)
        heard = count_choices(CHOSEN[:, start : start + places], recency(valid, places, 0.7), 5)
        hotness = faded(valid, 0.7)[None, :, None] * hotness + heard
    np.testing.assert_allclose(along[:, :, 8], hotness, rtol=1e-5, atol=1e-6)
