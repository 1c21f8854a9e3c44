import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import (
    Acceptance,
    Case,
    DraftCost,
    Workload,
    best,
    catalog,
    chain_plan,
    expected_tokens_iid,
    price,
    priced_chains,
    step_cost,
    step_operators,
    tokens_per_cycle,
    uniform_footprint,
)
from hwmodels.network.operators import StepShape
from hwmodels.speculation import expected_log_speedup

CONDITIONAL = np.array([0.9, 0.75, 0.8, 0.6])


def enumerated_tokens(conditional):
    """Expected tokens of a cycle by going through every outcome of the draft tokens."""
    total = 0.0
    for accepted in itertools.product((True, False), repeat=len(conditional)):
        probability = np.prod([p if a else 1 - p for p, a in zip(conditional, accepted)])
        run = next((i for i, a in enumerate(accepted) if not a), len(accepted))
        total += probability * (run + 1)  # what was accepted before the first rejection, and the target's own token
    return total


def result_of(device, architecture, workload, footprint, conditional, temperature=0.0):
    return priced_chains(
        Case(device, architecture, workload=workload, footprint=footprint),
        Acceptance(conditional),
        temperature=temperature,
    ).result


@jax.jit
def chain_cost(device, architecture, workload, footprint, draft_length):
    return price(
        Case(device, architecture, workload=workload, footprint=footprint, draft=DraftCost()), chain_plan(draft_length)
    )


#: Compiled once for all tests of one shape: eagerly, each of some hundred small operations is compiled for itself.
jitted_result_of = jax.jit(result_of)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.85, 1.0])
def test_iid_tokens_by_enumeration(alpha):
    for draft_length in range(6):
        expected = enumerated_tokens([alpha] * draft_length)
        assert float(expected_tokens_iid(alpha, draft_length)) == pytest.approx(expected, rel=1e-6)


def test_tokens_per_cycle_by_enumeration():
    # By hand for two positions: 1 + 0.9 + 0.9 * 0.75 = 2.575.
    tokens = tokens_per_cycle(jnp.array(CONDITIONAL))
    assert float(tokens[1]) == pytest.approx(2.575)
    np.testing.assert_allclose(tokens, [enumerated_tokens(CONDITIONAL[: i + 1]) for i in range(4)], rtol=1e-6)


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, 15.0), (0.0, 1.0), (0.5, 3.5625)])
def test_gradient_of_iid_tokens_by_hand(alpha, expected, x64):
    # d/da of 1 + a + ... + a^5 is 1 + 2a + 3a^2 + 4a^3 + 5a^4; at 1 the closed form is 0 / 0.
    # At a half: 1 + 1 + 0.75 + 0.5 + 0.3125.
    assert float(jax.grad(expected_tokens_iid)(alpha, 5)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("conditional", [CONDITIONAL, [1.0, 1.0, 1.0]])
def test_gradient_of_tokens_per_cycle(conditional, check_gradient):
    check_gradient(lambda c: jnp.sum(jnp.log(tokens_per_cycle(c))), jnp.array(conditional))


def test_gradient_of_tokens_per_cycle_at_zero(x64):
    # 1 + a + ab + abc by a is 1 + b + bc, by b is a + ac, by c is ab. A gradient through quotients would fail at b = 0.
    a, b, c = 0.9, 0.0, 0.4
    gradient = jax.grad(lambda x: tokens_per_cycle(x)[-1])(jnp.array([a, b, c]))
    np.testing.assert_allclose(gradient, [1 + b + b * c, a + a * c, a * b], rtol=1e-12)


def test_negative_draft_length_is_refused():
    with pytest.raises(ValueError, match="draft_length is -1; it must be a whole number >= 0"):
        expected_tokens_iid(0.5, -1)


@pytest.mark.device_matrix
def test_cycle_is_draft_steps_and_one_verification(small, toy_device, workload, footprint):
    cycle = chain_cost(toy_device, small, workload, footprint, 4)
    here = {"batch": 3.0, "context_tokens": 117.0}
    draft = step_operators(small, StepShape(tokens=1, weight_bits=footprint.draft_weight_bits, kv_bits=6.3, **here))
    verify = step_operators(small, StepShape(tokens=5, weight_bits=footprint.target_weight_bits, kv_bits=12.7, **here))
    draft, verify = step_cost(toy_device, draft), step_cost(toy_device, verify)
    np.testing.assert_allclose(cycle.draft.cost.total_s, draft.total_s[None], rtol=1e-6)
    np.testing.assert_allclose(cycle.verify_s, verify.total_s, rtol=1e-6)
    np.testing.assert_allclose(cycle.total_s, 4 * draft.total_s + verify.total_s, rtol=1e-6)


@pytest.mark.device_matrix
def test_perfect_free_draft_gains_every_token_where_memory_binds(workload):
    # A draft that reads almost nothing and is always right: a cycle of 4 costs one target step and yields 5 tokens.
    footprint = dataclasses.replace(
        uniform_footprint(16),
        draft_weight_bits=jax.tree.map(lambda _: 1e-6, uniform_footprint(16).draft_weight_bits),
        draft_kv_bits=1e-6,
    )
    device = dataclasses.replace(catalog.device("rtx-4090"), peak_flops_per_s=1e18)
    # One short sequence: activations and the new tokens' KV are small beside the weights.
    light = dataclasses.replace(workload, batch=1.0)
    result = jitted_result_of(device, catalog.architecture("llama-3.1-8b"), light, footprint, np.ones(4))
    assert float(result.speedup_vs_bf16_ar[4]) == pytest.approx(5.0, rel=0.01)


@pytest.mark.device_matrix
@settings(deadline=None, max_examples=15)
@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
def test_a_higher_acceptance_never_lowers_the_speedup(low, other):
    # The acceptance has a leading axis here, so that both go through at once.
    result = jitted_result_of(
        catalog.device("jetson-agx-orin"),
        catalog.architecture("qwen3-4b"),
        Workload(batch=2.0, context_tokens=300.0),
        uniform_footprint(8),
        np.array([low, np.maximum(low, other)]),
    )
    assert np.all(result.speedup_vs_bf16_ar[1] >= result.speedup_vs_bf16_ar[0] * (1 - 1e-6))
    assert best(result).speedup_vs_bf16_ar[1] >= best(result).speedup_vs_bf16_ar[0] * (1 - 1e-6)


@pytest.mark.device_matrix
def test_best_is_the_highest_entry(small, toy_device, workload, footprint):
    result = jitted_result_of(toy_device, small, workload, footprint, CONDITIONAL)
    chosen = best(result)
    i = int(np.argmax(result.speedup_vs_bf16_ar))
    assert 0 < i < 4, "a case in which the best draft is neither the shortest nor the longest"
    assert int(chosen.draft_length) == i
    for field in ("tokens_per_cycle", "cycle_s", "speedup_vs_bf16_ar", "speedup_vs_stored_ar"):
        assert getattr(chosen, field) == getattr(result, field)[i]


@pytest.mark.device_matrix
def test_no_draft_pays_when_none_is_accepted(small, toy_device, workload, footprint):
    chosen = best(jitted_result_of(toy_device, small, workload, footprint, np.array([0.0, 0.9, 0.9, 0.9])))
    assert int(chosen.draft_length) == 0
    assert float(chosen.speedup_vs_stored_ar) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.device_matrix
def test_logits_choose_the_draft_length(small, toy_device, workload, footprint):
    result = jitted_result_of(toy_device, small, workload, footprint, CONDITIONAL)
    logs = np.log(result.speedup_vs_bf16_ar)
    assert float(expected_log_speedup(result, jnp.zeros(5))) == pytest.approx(logs.mean(), rel=1e-5)
    assert float(expected_log_speedup(result, jnp.array([0, 0, 0, 1e3, 0.0]))) == pytest.approx(logs[3], rel=1e-5)
    slope = jax.grad(lambda logits: expected_log_speedup(result, logits))(jnp.zeros(5))
    assert int(jnp.argmax(slope)) == int(best(result).draft_length)


@pytest.mark.parametrize("conditional", [0.9, jnp.zeros((2, 0))])
def test_acceptance_needs_positions(small, toy_device, workload, footprint, conditional):
    with pytest.raises(ValueError, match=r"has shape .*; it needs a last axis of >= 1 positions"):
        jitted_result_of(toy_device, small, workload, footprint, conditional)


@pytest.mark.device_matrix
def test_gradient_of_the_objective(small, toy_device, workload, footprint, check_gradient):
    # Draft lengths are weighted smoothly; the roofline is exact, at a point away from its kinks.
    def objective(x):
        result = result_of(*x)
        return expected_log_speedup(result, jnp.arange(5.0))

    check_gradient(objective, (toy_device, small, workload, footprint, jnp.array(CONDITIONAL)))
