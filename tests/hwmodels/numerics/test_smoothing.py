"""Smooth maxima of temperatures that are known beforehand: products and roots instead of powers, the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics import smooth_maximum

VALUES = jnp.array([[1.3, 2.0, 0.0, 1.9], [0.4, 0.1, 0.3, 0.2], [0.0, 0.0, 0.0, 0.0], [3e-7, 2e-7, 1e-7, 3e-7]])


@pytest.mark.device_matrix(1)
@pytest.mark.parametrize("temperature", [0.5, 1 / 3, 0.3, 0])
def test_a_known_temperature_gives_what_a_traced_one_gives(temperature):
    known, traced = lambda v: smooth_maximum(v, temperature), lambda v: smooth_maximum(v, jnp.float32(temperature))
    for transform in (lambda f: f, lambda f: jax.jit(jax.vmap(jax.grad(f)))):
        np.testing.assert_allclose(transform(known)(VALUES), transform(traced)(VALUES), rtol=3e-6)
