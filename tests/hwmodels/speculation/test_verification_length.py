"""Which verification length for several tasks and contexts, and when to switch."""

import jax.numpy as jnp
import numpy as np
import pytest
from effective_performance_samples import ACCEPTED, CONTEXTS, DRAFT_S, GRID, LAW, LENGTHS, TOKEN_S, VERIFY_S, generate

from hwmodels.speculation.verification_length import (
    Schedule,
    best_schedule,
    generation_time,
    geometric_mean_tokens,
    naive_length,
    schedule_time,
    unified_length,
)

pytestmark = pytest.mark.device_matrix


def test_reference_lengths():
    # Gains per token: 0.7, 0.35, 0.15, 0.05
    naive = naive_length(LENGTHS, ACCEPTED, slope=0.2)
    assert (float(naive.length), int(naive.index), bool(naive.found)) == (4.0, 2, True)
    never = naive_length(LENGTHS, ACCEPTED, slope=0.05)
    assert (float(never.length), bool(never.found)) == (16.0, False)
    # By the law's own slope B / (x - C) = 0.02 at x = 33.6; differences of whole steps reach it half a token earlier.
    assert float(naive_length(GRID, LAW).length) == 34.0
    two = naive_length(LENGTHS, jnp.stack([ACCEPTED, ACCEPTED]), slope=jnp.array([0.2, 0.4]))
    assert two.length.tolist() == [4.0, 2.0]


def test_one_length_for_all_tasks():
    # Cycles of 11, 12, 19 s, a step of 10 s. Own best: 4 with 2.4 / 1.2; 8 with 6 / 1.9. Mean 1.7, 2.94, 4.24: 8 is best.
    accepted = jnp.array([[1.7, 2.4, 3.0], [1.7, 3.6, 6.0]])
    found = unified_length(jnp.array([2, 4, 8]), accepted, cycle_s=jnp.array([11.0, 12.0, 19.0]), autoregressive_s=10.0)
    assert found.own.length.tolist() == [4.0, 8.0]
    mean = geometric_mean_tokens(accepted)
    assert mean.tolist() == pytest.approx([1.7, (2.4 * 3.6) ** 0.5, 18**0.5])
    assert (float(found.unified.length), float(found.unified.speedup)) == (4.0, pytest.approx(mean[1] / 1.2))
    assert found.speedup.tolist() == pytest.approx([2.0, 3.0])
    assert found.loss.tolist() == pytest.approx([0.0, 1 - 3.0 / (6 / 1.9)])
    # Where no speculation pays for all together, every task decodes autoregressively.
    slow = unified_length(jnp.array([2, 4, 8]), accepted, cycle_s=jnp.array([11.0, 12.0, 19.0]), autoregressive_s=2.0)
    assert not bool(slow.unified.speculate)
    assert slow.speedup.tolist() == [1.0, 1.0]
    # The best of the second task alone is 6 / 9.5 < 1 as well.
    assert slow.loss.tolist() == [0.0, 0.0]


def lines(contexts):
    return [np.interp(contexts, CONTEXTS, np.asarray(TOKEN_S)[:, option]) for option in range(3)]


def test_switching_by_hand_and_by_summing():
    schedule = best_schedule(CONTEXTS, TOKEN_S)
    assert schedule.option.tolist() == [1, 2, 2, 0]
    # From 2 to 4 and from 3 to 3.5 over 200 tokens: they cross after two thirds. From 6.5 to 12 and from 7 to 8 over
    # 4000: after 0.5 / 4.5.
    assert schedule.start.tolist() == pytest.approx([100.0, 300 - 200 / 3, 1000.0, 1000 + 4000 / 9])
    found = generate(TOKEN_S, 150.0, 2500.0)
    steps = 150.0 + (np.arange(100_000) + 0.5) * 0.025
    assert float(found.total_s) == pytest.approx(np.sum(np.min(lines(steps), axis=0)) * 0.025, rel=1e-5)
    for option in range(3):
        assert float(found.option_s[option]) == pytest.approx(np.sum(lines(steps)[option]) * 0.025, rel=1e-5)
    # 17284, 18320 and 16594 s: the short tree is best if nothing may change.
    assert int(found.best_fixed) == 2
    assert float(found.speedup_vs_ar) == pytest.approx(float(found.option_s[0] / found.total_s))
    assert float(found.speedup_vs_best_fixed) == pytest.approx(float(found.option_s[2] / found.total_s))
    assert float(found.speedup_vs_best_fixed) > 1.05
    assert float(found.tokens_per_s) == pytest.approx(2500 / float(found.total_s))


def test_a_given_schedule_and_contexts_beyond_the_grid():
    # Option 2 to a context of 200, then option 0. From 40: 2.85 to 3.25 s over 160 tokens, 5.5 to 5.6 s over 20.
    schedule = Schedule(jnp.array([70.0, 200.0]), jnp.array([2, 0]))
    found = schedule_time(CONTEXTS, TOKEN_S, schedule=schedule, first_context=40.0, tokens=180.0)
    assert float(found) == pytest.approx(160 * 3.05 + 20 * 5.55, rel=1e-6)
    # Past 5000 lines go on: 8 s and 0.25 ms more per token.
    late = generate(TOKEN_S, 6000.0, 400.0)
    assert float(late.total_s) == pytest.approx(400 * (8.25 + 0.05), rel=1e-6)
    # No schedule beats the best one.
    best = float(generate(TOKEN_S, 40.0, 180.0).total_s)
    assert best < float(found)
    assert float(generate(TOKEN_S, 40.0, 0.0).total_s) == 0.0


def test_gradients_of_choices_over_tasks_and_contexts(check_gradient):
    def unified(leaves):
        found = unified_length(LENGTHS, leaves[0], cycle_s=leaves[1], autoregressive_s=leaves[2])
        return jnp.sum(found.speedup) + jnp.sum(found.loss)

    check_gradient(unified, (jnp.stack([ACCEPTED, ACCEPTED**1.4]), VERIFY_S + DRAFT_S, jnp.asarray(9.3)))
    check_gradient(
        lambda leaves: (
            generation_time(leaves[0], leaves[1], first_context=leaves[2], tokens=leaves[3]).speedup_vs_best_fixed
        ),
        (CONTEXTS, TOKEN_S, jnp.asarray(150.0), jnp.asarray(2500.0)),
    )
