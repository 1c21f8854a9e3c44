"""A function within many programs: traced once, with the values and gradients that it has by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.step import priced_steps
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


def test_with_arrays_at_hand_it_runs_as_it_is(traced):
    function, found = traced
    for _ in range(2):
        assert function({"a": np.float32(2.0)}, power=2)["sum"] == 12.0
    assert len(found) == 2
    # An array among tracers is known as well.
    jax.vmap(lambda b: function({"a": np.float32(2.0), "b": b}, power=2))(jnp.ones(2))
    assert len(found) == 3


@pytest.mark.device_matrix
def test_a_devices_steps_are_traced_once_for_all_programs(monkeypatch):
    counted = []
    real = priced_steps.step_operators
    monkeypatch.setattr(priced_steps, "step_operators", lambda *a: (counted.append(1), real(*a))[1])
    device, network = catalog.device("rtx-4090"), catalog.architecture("llama-3.2-1b")
    bits = hwmodels.Footprint(
        draft_weight_bits=hwmodels.uniform_weight_bits(5.0),
        target_weight_bits=hwmodels.uniform_weight_bits(14.0),
        draft_kv_bits=6.0,
        target_kv_bits=12.0,
    )

    def total_s(device, network, bits, context):
        workload = hwmodels.Workload(batch=2.0, context_tokens=context)
        case = hwmodels.Case(device, network, workload, bits)
        return hwmodels.baselines(case, temperature=0.0123).stored.cost.total_s  # which no other test has

    for factor in (1.0, 2.0, 3.0):
        program = lambda *given, factor=factor: total_s(*given) * factor
        jax.jit(program).trace(device, network, bits, jnp.float32(100.0))
    assert len(counted) == 1
