"""Effective performance: a case by hand, the paper's limits, switching against summing by steps."""

import jax.numpy as jnp
import numpy as np
import pytest
from effective_performance_samples import ACCEPTED, DRAFT_S, GRID, LAW, LENGTHS, VERIFY_S

from hwmodels.speculation.verification_length import (
    acceptance_rate,
    decide,
    discounted_performance,
    effective_performance,
    primary_performance,
)
from hwmodels.step.roofline_cases import (
    compute_bound_speedup,
    memory_bound_speedup,
    mixed_speedup,
)


def test_by_hand():
    assert primary_performance(LENGTHS, VERIFY_S).tolist() == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    # 4 / 12, 16 / 36
    discounted = discounted_performance(LENGTHS, VERIFY_S, DRAFT_S)
    assert [float(discounted[i]) for i in (2, 4)] == pytest.approx([1 / 3, 4 / 9])
    assert float(acceptance_rate(LENGTHS, ACCEPTED)[3]) == pytest.approx(0.375)
    effective = effective_performance(ACCEPTED, VERIFY_S, DRAFT_S)
    # 1 / 10.5, 1.7 / 11, 2.4 / 12, 3 / 19, 3.4 / 36
    assert effective.tolist() == pytest.approx([0.095238, 0.154545, 0.2, 0.157895, 0.094444], rel=1e-4)
    np.testing.assert_allclose(effective, discounted * acceptance_rate(LENGTHS, ACCEPTED), rtol=1e-6)
    decision = decide(LENGTHS, effective, 10.0)
    assert (bool(decision.speculate), float(decision.length), int(decision.best_index)) == (True, 4.0, 2)
    assert float(decision.speedup) == pytest.approx(2.0)
    assert float(decision.tokens_per_s) == pytest.approx(0.2)


def test_not_to_speculate_is_an_answer():
    effective = effective_performance(ACCEPTED, VERIFY_S, DRAFT_S)
    # One context has a step of 4 s, the other one of 10 s.
    decision = decide(LENGTHS, jnp.stack([effective, effective]), jnp.array([4.0, 10.0]))
    assert decision.speculate.tolist() == [False, True]
    assert decision.length.tolist() == [1.0, 4.0]
    assert decision.speedup.tolist() == pytest.approx([1.0, 2.0])
    assert decision.tokens_per_s.tolist() == pytest.approx([0.25, 0.2])
    # What speculation would have done, all the same.
    assert decision.best_length.tolist() == [4.0, 4.0]
    assert decision.best_speedup.tolist() == pytest.approx([0.8, 2.0])
    # A tie is no reason to speculate.
    assert not bool(decide(LENGTHS, effective, 1.0 / effective[2]).speculate)


def test_mixed_case_by_hand_and_its_limits():
    # Below the ridge of 5: 1.7 / 1.1 and 2.4 / 1.2. Beyond it 3 / (1.6 + 0.3).
    found = mixed_speedup(LENGTHS, ACCEPTED, ratio=DRAFT_S / 10, ridge=5.0)
    assert found.by_length.tolist() == pytest.approx([1 / 1.05, 1.7 / 1.1, 2.0, 3 / 1.9, 3.4 / 3.6])
    assert float(found.below_ridge) == pytest.approx(2.0)
    assert float(found.above_ridge) == pytest.approx(3 / 1.9)
    assert (float(found.best), float(found.best_length)) == (pytest.approx(2.0), 4.0)

    alpha = np.linspace(0.02, 0.4, GRID.size)
    at = lambda ridge: mixed_speedup(GRID, LAW, ratio=alpha, ridge=ridge)
    np.testing.assert_allclose(at(1e6).by_length, memory_bound_speedup(LAW, alpha), rtol=1e-6)
    assert float(at(1e6).above_ridge) == 0.0
    assert float(at(1.0).below_ridge) == 0.0
    assert np.all(np.asarray(at(1.0).by_length) < 1)
    np.testing.assert_allclose(at(1.0).by_length, compute_bound_speedup(GRID, LAW, alpha), rtol=1e-6)


@pytest.mark.device_matrix
def test_gradients(check_gradient):
    check_gradient(
        lambda leaves: decide(LENGTHS, effective_performance(*leaves[:3]), leaves[3]).speedup,
        (ACCEPTED, VERIFY_S, DRAFT_S, jnp.asarray(9.3)),
    )

    def mixed(leaves):
        found = mixed_speedup(LENGTHS, leaves[0], ratio=leaves[1], ridge=leaves[2])
        return jnp.sum(jnp.sin(found.by_length)) + found.above_ridge

    check_gradient(mixed, (ACCEPTED, DRAFT_S / 10, jnp.asarray(5.3)))
