"""Rates from shares and from a mean length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Acceptance, expected_tokens_iid, tokens_per_cycle
from hwmodels.speculation import iid_acceptance, shares_to_rates


def test_rates_are_ratios_of_neighbouring_shares():
    found = Acceptance.from_cumulative([0.8, 0.6, 0.15, 0.0, 0.0]).conditional
    np.testing.assert_allclose(found, [0.8, 0.75, 0.25, 0.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("shares", [[0.5, 0.6], [1.1], [-0.1], [], [0.5, float("nan")]])
def test_shares_that_no_draft_has_are_refused(shares):
    with pytest.raises(ValueError, match="shares of cycles are"):
        Acceptance.from_cumulative(shares)


@pytest.mark.parametrize("length", [1, 3, 7, 64])
@pytest.mark.parametrize("rate", [0.0, 0.013, 0.5, 0.87, 0.999, 1.0])
def test_a_rate_comes_back_from_its_tokens_per_cycle(rate, length):
    tokens = float(expected_tokens_iid(rate, length))
    found = Acceptance.from_mean_length(tokens, length).conditional
    assert found.shape == (length,)
    np.testing.assert_allclose(tokens_per_cycle(found)[-1], tokens, rtol=2e-6)
    np.testing.assert_allclose(found, rate, atol=3e-6)


def test_a_length_between_two_is_a_mean_of_both():
    tokens = 0.4 * expected_tokens_iid(0.7, 3) + 0.6 * expected_tokens_iid(0.7, 4)
    assert iid_acceptance(tokens, 3.6) == pytest.approx(0.7, abs=1e-6)


@pytest.mark.parametrize(("tokens", "length"), [(0.99, 3), (4.01, 3), (float("nan"), 3), (2.0, 0), (2.0, 129)])
def test_a_mean_length_that_no_draft_has_is_refused(tokens, length):
    with pytest.raises(ValueError, match="allowed is 1"):
        Acceptance.from_mean_length(tokens, length)


@pytest.mark.parametrize(("tokens", "length"), [(1.01, 3.0), (2.3, 3.0), (3.95, 3.5), (30.0, 64.0)])
def test_the_solved_rate_has_the_slope_of_differences(tokens, length):
    with jax.enable_x64(True):
        slopes = jax.jit(jax.vmap(jax.grad(iid_acceptance, (0, 1))))(jnp.array([tokens]), jnp.array([length + 0.2]))
        for place, step in ((0, [1e-4, 0.0]), (1, [0.0, 1e-4])):
            ends = [iid_acceptance(tokens + sign * step[0], length + 0.2 + sign * step[1]) for sign in (1, -1)]
            np.testing.assert_allclose(slopes[place][0], (ends[0] - ends[1]) / 2e-4, rtol=1e-4)


def test_solving_does_not_compile_anew_for_other_numbers():
    traces = 0

    @jax.jit
    def solve(tokens, length):
        nonlocal traces
        traces += 1
        return iid_acceptance(tokens, length)

    solve(2.0, 3.0), solve(2.5, 4.0)
    assert traces == 1


def test_shares_have_gradients_where_they_are_reached():
    slope = jax.jacobian(shares_to_rates)(jnp.array([0.8, 0.4, 0.0]))
    np.testing.assert_allclose(slope, [[1, 0, 0], [-0.625, 1.25, 0], [0, 0, 2.5]], atol=1e-6)
