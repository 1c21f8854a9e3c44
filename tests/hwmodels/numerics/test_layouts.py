"""Arrays laid out for batches: the same values and slopes, and loops over the batch in what is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics.gradients import batch_innermost

AT = jnp.array([[0.3, -2.0, 5.5], [1.5, 0.0, -0.7]])


def curved(x):
    return jnp.sum(jnp.sin(x) * x**3)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit])
def test_values_are_the_same(shape, around):
    values = jnp.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)
    np.testing.assert_array_equal(around(batch_innermost)(values), values)


@pytest.mark.device_matrix
def test_slopes_of_any_order_are_the_same():
    held = lambda x: curved(batch_innermost(x))
    transforms = (
        jax.grad,
        jax.hessian,
        lambda f: jax.vmap(jax.grad(f)),
        lambda f: jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))),
        lambda f: lambda x: jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(f))))(x[None]),
    )
    for transform in transforms:
        for found, expected in zip(*map(jax.tree.leaves, (transform(held)(AT), transform(curved)(AT))), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    found, expected = (jax.jvp(f, (AT,), (AT[::-1],)) for f in (held, curved))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
