"""A function within many programs: traced once, with the values and gradients that it has by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.step.priced_steps import cached_trace


@pytest.fixture
def traced():
    """A function of pytrees, and what it was traced with."""
    found = []

    @cached_trace
    def function(tree, *, power, scale=3):
        """Doc."""
        found.append((type(power), type(scale)))
        assert not isinstance(scale, jax.core.Tracer)  # a Python number is known
        return {"sum": sum(tree.values()) ** power * scale}

    return function, found


def test_programs_share_one_trace(traced):
    function, found = traced
    tree = {"a": jnp.float32(2.0), "b": jnp.arange(3.0)}
    one = jax.jit(lambda tree: function(tree, power=2))
    other = jax.jit(lambda tree: function(tree, power=2)["sum"] - 1.0)
    np.testing.assert_array_equal(one(tree)["sum"], [12.0, 27.0, 48.0])
    np.testing.assert_array_equal(other(tree), [11.0, 26.0, 47.0])
    batched = jax.jit(jax.vmap(lambda tree: function(tree, power=2)["sum"]))
    np.testing.assert_array_equal(batched(jax.tree.map(lambda x: x[None], tree)), [[12.0, 27.0, 48.0]])
    slope = jax.jit(jax.grad(lambda a: jnp.sum(function({"a": a, "b": tree["b"] * a}, power=2)["sum"])))
    # 3 (a + a b)^2 over b = 0, 1, 2 with a = 2: 6 a (1 + b)^2 each.
    assert float(slope(jnp.float32(2.0))) == pytest.approx(6 * 2 * (1 + 4 + 9))
    assert len(found) == 1
    # Another number of Python is another function, and so is one of another type.
    for more in ({"power": 3}, {"power": 2.0}, {"power": 2, "scale": 3.0}):
        jax.jit(lambda tree, more=more: function(tree, **more))(tree)
    assert found[1:] == [(int, int), (float, int), (int, float)]
    assert function.__doc__ == "Doc."
