"""Cotangents that are computed once: the values and slopes of what they are put around, and less arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics.gradients import share_cotangent

pytestmark = pytest.mark.device_matrix

AT = jnp.array([[0.3, -2.0, 5.5], [1.5, 0.0, -0.7]])


def curved(x):
    return jnp.sum(jnp.sin(x) * x**3)


def test_values_and_slopes_of_any_order_are_the_same():
    held = lambda x: curved(share_cotangent(x))
    np.testing.assert_array_equal(share_cotangent(AT), AT)
    for transform in (jax.grad, jax.hessian, lambda f: jax.vmap(jax.grad(f)), lambda f: jax.jit(jax.grad(f))):
        np.testing.assert_allclose(transform(held)(AT), transform(curved)(AT), rtol=1e-6)
    found, expected = (jax.jvp(f, (AT,), (AT[::-1],)) for f in (held, curved))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers form their loops otherwise")
def test_a_cotangent_that_many_leaves_need_is_computed_once():
    def cost(around):
        def slopes(leaves):
            columns = [leaves["a"] * k + leaves["b"] * leaves["c"] + leaves["d"] / k for k in range(1, 15)]
            values = around(jnp.stack(columns, axis=-1))
            return jnp.sum(((values * leaves["a"][:, None] + 1.0) * values + 2.0) * values)

        leaves = dict.fromkeys("abcd", jnp.ones(64))
        return jax.jit(jax.grad(slopes)).lower(leaves).compile().cost_analysis()["flops"]

    assert cost(share_cotangent) < 0.8 * cost(lambda x: x)
