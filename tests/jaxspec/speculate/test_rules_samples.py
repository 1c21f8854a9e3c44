"""Acceptance rules on samples: chi-square of a million, a broken rule is noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from long_runs import optimized_jit
from rules_samples import BROKEN_RULES, verify_chain
from scipy import stats

from jaxspec.speculate.tree_rules import acceptance_probability, residual_distribution

pytestmark = pytest.mark.network

SAMPLES, CHUNKS, WIDE_VOCAB = 1_000_000, 10, 25


def verify_with(accept, residual):
    """Chain verification in plain steps from any pair of rules: a witness of `verify_chain`, and the place of broken ones."""

    def verify(target, draft, drafted, draft_length, uniforms, key):
        width = target.shape[0]
        accepted = jnp.asarray(0)
        for i in range(width):
            passes = uniforms[i] < accept(target[i], draft[i])[drafted[i]]
            accepted += jnp.where((accepted == i) & (i < draft_length) & passes, 1, 0)
        after = residual(target[accepted], draft[accepted] * jnp.where(accepted < draft_length, 1.0, 0.0))
        return accepted, jax.random.categorical(key, jnp.log(after))

    return verify


def chi_square_p_value(verify, *, chunks=CHUNKS, draft_length=2, seed=0):
    """Of the transitions in many verified chains, against a target and a draft that are random Markov chains.

    Wherever the rules stop, each token put out must follow its predecessor with the target's probability.
    """
    rng = np.random.default_rng(1)
    target, draft = rng.dirichlet(np.full(WIDE_VOCAB, 0.7), size=(2, WIDE_VOCAB)).astype(np.float32)
    target = (target + 2e-3) / (target + 2e-3).sum(axis=1, keepdims=True)  # no cell with an expectation near zero
    p_table, q_table = jnp.asarray(target), jnp.asarray(draft)
    q_steps = jnp.cumsum(q_table, axis=1)
    width, chunk = draft_length + 1, SAMPLES // CHUNKS

    @optimized_jit
    def count(key):
        root_key, draft_key, accept_key, next_key = jax.random.split(key, 4)
        chain = [jax.random.randint(root_key, (chunk,), 0, WIDE_VOCAB)]
        for u in jax.random.uniform(draft_key, (draft_length, chunk)):
            drawn = jnp.sum(q_steps[chain[-1]] <= u[:, None], axis=1)
            chain.append(jnp.minimum(drawn, WIDE_VOCAB - 1))
        chain = jnp.stack(chain, axis=1)
        drafted = jnp.concatenate([chain[:, 1:], jnp.zeros_like(chain[:, :1])], axis=1)
        uniforms = jax.random.uniform(accept_key, (chunk, width))
        keys = jax.random.split(next_key, chunk)
        accepted, next_token = jax.vmap(verify, in_axes=(0, 0, 0, None, 0, 0))(
            p_table[chain], q_table[chain], drafted, jnp.asarray(draft_length), uniforms, keys
        )
        place = jnp.arange(width)[None]
        put_out = jnp.where(place == accepted[:, None], next_token[:, None], drafted)
        seen = place <= accepted[:, None]
        return jnp.zeros((WIDE_VOCAB, WIDE_VOCAB), jnp.int32).at[chain, put_out].add(seen.astype(jnp.int32))

    counts = sum(np.asarray(count(key), np.int64) for key in jax.random.split(jax.random.key(seed), chunks))
    expected = counts.sum(axis=1, keepdims=True) * target.astype(np.float64)
    assert expected.min() > 10
    statistic = np.sum((counts - expected) ** 2 / expected)
    return stats.chi2.sf(statistic, WIDE_VOCAB * (WIDE_VOCAB - 1))


def test_a_million_samples_have_the_targets_distribution():
    assert chi_square_p_value(verify_chain) > 1e-4


@pytest.mark.parametrize(
    "broken", ["refused tokens redrawn from the target", "everything accepted", "ratio upside down"]
)
def test_a_tenth_of_them_notices_a_broken_rule(broken):
    rules = {"accept": acceptance_probability, "residual": residual_distribution} | BROKEN_RULES[broken]
    assert chi_square_p_value(verify_with(**rules), chunks=CHUNKS // 10) < 1e-9


def test_verification_is_that_of_the_rules_step_by_step():
    rng = np.random.default_rng(5)
    p, q = (rng.dirichlet(np.full(6, 0.5), size=(300, 4)).astype(np.float32) for _ in range(2))
    drafted, uniforms = rng.integers(6, size=(300, 4)), rng.random((300, 4)).astype(np.float32)
    keys = jax.random.split(jax.random.key(9), 300)
    plain = verify_with(acceptance_probability, residual_distribution)
    both = [jax.jit(jax.vmap(verify, in_axes=(0, 0, 0, None, 0, 0))) for verify in (verify_chain, plain)]
    seen = set()
    for length in range(4):
        verdict, (accepted, next_token) = (f(p, q, drafted, jnp.asarray(length), uniforms, keys) for f in both)
        np.testing.assert_array_equal(verdict.accepted, accepted)
        np.testing.assert_array_equal(verdict.next_token, next_token)
        assert np.max(verdict.accepted) <= length
        seen |= set(np.asarray(verdict.accepted).tolist())
    assert seen == {0, 1, 2, 3}
