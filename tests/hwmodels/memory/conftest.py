"""What tests of memories share: the check of derivatives at the ends of a range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def check_at_ends(x64):
    """Gradient along directions against one-sided differences of second order; needs points inside or on the end of a range.

    Args:
        points, directions: alike, leaves "case ...".
    Returns:
        "case", the derivatives.
    """

    def check(function, points, directions, *, step=1e-4, tolerance=1e-3):
        # Every case stands for three points: on the end, and one and two steps inside.
        steps = step * jnp.arange(3.0)
        shifted = jax.vmap(lambda s: jax.tree.map(lambda x, d: x + s * d, points, directions))(steps)
        here, near, far = np.asarray(jax.jit(jax.vmap(jax.vmap(function)))(shifted))
        differences = (4 * near - 3 * here - far) / (2 * step)
        gradients = jax.jit(jax.vmap(jax.grad(function)))(points)
        dots = jax.tree.map(
            lambda g, d: np.sum(np.asarray(g * d).reshape(len(here), -1), axis=1), gradients, directions
        )
        along = np.sum(jax.tree.leaves(dots), axis=0)
        np.testing.assert_allclose(along, differences, rtol=tolerance, atol=tolerance * np.max(np.abs(differences)))
        assert np.any(differences != 0)
        return along

    return check
