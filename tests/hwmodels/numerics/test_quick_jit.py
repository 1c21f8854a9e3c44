"""Programs that compile quickly: the function's own results, one compilation, and options that XLA knows."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import quick_jit


def test_results_and_compilations_are_those_of_jit():
    @quick_jit
    @chex.assert_max_traces(1)
    def function(x, *, scale):
        """Doc."""
        return {"y": jnp.sum(jnp.exp(-x * scale)), "z": x[::2]}

    plain = jax.jit(lambda x, scale: {"y": jnp.sum(jnp.exp(-x * scale)), "z": x[::2]})
    for seed in range(3):
        x = jax.random.uniform(jax.random.key(seed), (100,))
        found, expected = function(x, scale=jnp.float32(seed)), plain(x, jnp.float32(seed))
        np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-6)
        np.testing.assert_array_equal(found["z"], expected["z"])
    assert function.__doc__ == "Doc."
