import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import OPERATORS, OperatorWork, step_cost
from hwmodels.numerics import smooth_maximum

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=3, max_size=3)
TEMPERATURES = st.just(0.0) | st.floats(1e-5, 1.0)


def work_of(**operators):
    """Work that is 0 but for (flops, bytes, launches) of the operators named."""
    flops, traffic, launches = np.zeros((3, len(OPERATORS)), np.float32)
    for name, (f, b, n) in operators.items():
        i = OPERATORS.index(name)
        flops[i], traffic[i], launches[i] = f, b, n
    zeros = jnp.zeros(len(OPERATORS))
    return OperatorWork(jnp.asarray(flops), jnp.asarray(traffic), zeros, zeros, jnp.asarray(launches))


@settings(deadline=None, max_examples=50)
@given(TIMES, TEMPERATURES)
def test_lies_between_the_maximum_and_its_bound(values, temperature):
    result = float(smooth_maximum(jnp.array(values), temperature))
    assert result >= max(values) * (1 - 1e-6)
    assert result <= max(values) * 3**temperature * (1 + 1e-5)


def test_by_hand():
    # p = 2: the hypotenuse. p = 1: the sum. Temperature 0: the maximum itself, to the bit.
    values = jnp.array([3.0, 0.0, 4.0])
    assert float(smooth_maximum(values, 0.5)) == pytest.approx(5.0)
    assert float(smooth_maximum(values, 1.0)) == pytest.approx(7.0)
    assert float(smooth_maximum(values)) == 4.0


def test_tends_to_the_maximum():
    values = jnp.array([2.9, 3.0, 1.0])
    excess = [float(smooth_maximum(values, t)) - 3.0 for t in (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-6)]
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] == pytest.approx(0, abs=1e-6)
    assert excess[0] > 0.1


@pytest.mark.device_matrix(2)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_what_is_differentiated_has_the_same_value(temperature):
    # Its slopes have a rule of their own, which gives the value anew.
    values = jnp.array([1.3, 2.0, 0.0])
    value, _ = jax.value_and_grad(smooth_maximum)(values, temperature)
    assert float(value) == pytest.approx(float(smooth_maximum(values, temperature)), rel=1e-6)


@pytest.mark.device_matrix
def test_gradient(check_gradient):
    # 2 and 1.999 are closer than many a temperature, but further apart than the step of the differences.
    values = np.array([[1.3, 2.0, 0.7], [2.0, 1.999, 0.0], [0.0, 5.0, 0.0]])
    temperatures = np.array([0.0, 2e-3, 0.05, 1.0])
    # All pairs in one batch, so that each entry's gradient is checked by itself.
    pairs = jnp.repeat(jnp.array(values), 4, axis=0), jnp.tile(jnp.array(temperatures), 3)
    check_gradient(lambda v: jnp.sum(smooth_maximum(v, pairs[1])), pairs[0])


@pytest.mark.device_matrix
@pytest.mark.parametrize(("temperature", "weight"), [(0.0, 0.5), (0.5, 2**-0.5), (1.0, 1.0)])
def test_gradient_at_a_tie(temperature, weight, x64):
    # d/dv of (2 v^p)^(1/p) by one of the two is 2^(t - 1): a half in the limit, which the exact maximum gives as well.
    gradient = jax.grad(smooth_maximum)(jnp.array([2.0, 0.0, 2.0]), temperature)
    np.testing.assert_allclose(gradient[jnp.array([0, 2])], weight, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 0.2, 1.0])
def test_zeros_are_safe(temperature):
    for values in ([0.0, 0.0, 0.0], [0.0, 1e-30, 1e-9]):
        by_values, by_temperature = jax.grad(smooth_maximum, argnums=(0, 1))(jnp.array(values), temperature)
        assert np.all(np.isfinite(by_values))
        assert np.isfinite(by_temperature)
    assert smooth_maximum(jnp.zeros(3), temperature) == 0


def test_operator_time_by_hand(toy_device):
    # 7.2e12 FLOP/s and 2.7e11 bytes/s are reached. gate_up: 7.2e6 FLOP take 1 us, 5.4e5 bytes 2 us. down: 3 us against 1 us.
    work = work_of(gate_up=(7.2e6, 5.4e5, 3), down=(2.16e7, 2.7e5, 3), lm_head=(0, 2.7e5, 1))
    time_s = dict(zip(OPERATORS, np.asarray(step_cost(toy_device, work).operator_s, float)))
    assert time_s["gate_up"] == pytest.approx(2e-6 + 3 * 2e-9, rel=1e-6)
    assert time_s["down"] == pytest.approx(3e-6 + 3 * 2e-9, rel=1e-6)
    assert time_s["lm_head"] == pytest.approx(1e-6 + 2e-9, rel=1e-6)
    assert time_s["qkv"] == 0
    assert step_cost(toy_device, work).compute_s[OPERATORS.index("gate_up")] == pytest.approx(1e-6)
    assert step_cost(toy_device, work).memory_s[OPERATORS.index("gate_up")] == pytest.approx(2e-6)


@pytest.mark.device_matrix
@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_gradient_of_operator_time(toy_device, temperature, check_gradient):
    work = jax.tree.map(
        lambda leaf: leaf.astype(float),
        work_of(gate_up=(7.2e6, 5.4e5, 3), down=(2.16e7, 2.7e5, 3), o=(7.2e6, 2.5e5, 2)),
    )
    check_gradient(lambda x: step_cost(*x, temperature=temperature).total_s, (toy_device, work))
