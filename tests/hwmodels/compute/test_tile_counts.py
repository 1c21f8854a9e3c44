"""The soft minimum over tilings: by hand, and its slope against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.compute.tile_counts import soft_minimum


def test_by_hand():
    # 24 equal times t: (24 t^-16)^(-1/16) = t / 24^(1/16) = 0.8199 t.
    assert float(soft_minimum([jnp.float32(3.0)] * 24)) == pytest.approx(3.0 * 24 ** (-1 / 16), rel=1e-6)
    # 1^-16 + 2^-16 = 1.0000153.
    assert float(soft_minimum([jnp.float32(2.0), jnp.float32(1.0)])) == pytest.approx(1.0000153 ** (-1 / 16), rel=1e-6)
    # Far from the least a time does not count, and nothing overflows.
    assert float(soft_minimum([jnp.float32(1e-7), jnp.float32(1e4)])) == pytest.approx(1e-7, rel=1e-6)


def test_slopes(x64):
    del x64
    times = np.array([[1.3e-6, 1.1e-6, 4.0e-6], [2.0e-3, 2.0e-3, 2.1e-3], [0.7, 30.0, 0.6]])
    batch = jnp.array(times)
    total = lambda rows: soft_minimum(jnp.unstack(rows))
    for found in (jax.jit(jax.vmap(jax.grad(total)))(batch), jax.grad(lambda b: jnp.sum(jax.vmap(total)(b)))(batch)):
        np.testing.assert_allclose(found, differences(total, times), rtol=1e-5, atol=1e-9)


def differences(function, rows):
    found = np.zeros_like(rows)
    for place in np.ndindex(rows.shape):
        row, step = rows[place[0]], 1e-6 * rows[place]
        up, down = (row + sign * step * (np.arange(row.size) == place[1]) for sign in (1, -1))
        found[place] = (float(function(jnp.array(up))) - float(function(jnp.array(down)))) / (2 * step)
    return found
