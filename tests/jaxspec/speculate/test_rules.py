import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rules_samples import BROKEN_RULES, dirichlet, table_pairs, verify_chain

from jaxspec.speculate.sampling import Decoding, token_distribution
from jaxspec.speculate.tree_rules import acceptance_probability, residual_distribution

VOCAB, DRAFT_LENGTH = 5, 3


def conditional_tables(draw):
    """P(next token | all before it) for each length of what came before: one axis per token."""
    return [draw((VOCAB,) * length) for length in range(DRAFT_LENGTH + 1)]


def supported_on(tokens, rng):
    def draw(lead):
        weight = rng.exponential(size=(*lead, VOCAB)) * np.isin(np.arange(VOCAB), tokens)
        return weight / weight.sum(axis=-1, keepdims=True)

    return draw


def table_cases():
    rng = np.random.default_rng(0)
    few = dirichlet(rng, VOCAB, zeros=0.5)
    cases = table_pairs(rng, VOCAB, 0.5) | {
        "zeros in both": (few, few),
        "nothing in common": (supported_on([0, 3], rng), supported_on([1, 2, 4], rng)),
    }
    cases = {name: tuple(map(conditional_tables, pair)) for name, pair in cases.items()}
    same = conditional_tables(dirichlet(rng, VOCAB))
    return cases | {"equal": (same, same)}


TABLES = table_cases()


def output_distribution(target, draft, draft_length, accept, residual):
    """Joint distribution of the first tokens of speculative decoding, from the rules alone.

    Every way to an output is followed: `mass[k]` is the probability, for each prefix, that it has been committed with k
    drafts left in its cycle. A drafted token that is refused is replaced and ends the cycle, and so does the bonus token.
    """
    mass = [np.zeros(()) for _ in range(draft_length)] + [np.ones(())]
    for p, q in zip(map(jnp.asarray, target), map(jnp.asarray, draft)):
        accepted = np.asarray(q * accept(p, q))
        refused = 1.0 - accepted.sum(axis=-1, keepdims=True)
        replaced = np.asarray(residual(p, q))
        bonus = np.asarray(residual(p, jnp.zeros_like(q)))
        fresh = mass[0][..., None] * bonus
        for left in range(1, draft_length + 1):
            fresh = fresh + mass[left][..., None] * refused * replaced
        mass = [mass[left][..., None] * accepted for left in range(1, draft_length + 1)] + [fresh]
    return sum(mass)


def enumeration_error(target, draft, draft_length, accept=acceptance_probability, residual=residual_distribution):
    """Largest error of any output's probability."""
    exact = np.ones(())
    for p in target:
        exact = exact[..., None] * np.asarray(p)
    return np.max(np.abs(output_distribution(target, draft, draft_length, accept, residual) - exact))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("draft_length", [1, 2, 3])
@pytest.mark.parametrize("case", TABLES)
def test_output_has_the_targets_distribution(case, draft_length):
    assert enumeration_error(*TABLES[case], draft_length) < 1e-6


def filtered_by_hand(p, top_k, top_p):
    """One distribution: the likeliest k tokens, of these the fewest whose mass reaches p."""
    order = sorted(range(VOCAB), key=lambda token: (-p[token], token))[: top_k or VOCAB]
    mass, kept = 0.0, []
    for token in order:
        if mass >= top_p * sum(p[t] for t in order) and top_p < 1:
            break
        kept.append(token)
        mass += p[token]
    return np.where(np.isin(np.arange(VOCAB), kept), p, 0) / mass


@pytest.mark.network(3)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("top_k", "top_p"), [(2, 1.0), (3, 0.75), (1, 0.01)])
@pytest.mark.parametrize("case", ["random", "zeros in both", "a greedy draft"])
def test_output_has_the_filtered_targets_distribution(case, top_k, top_p):
    by_hand = lambda table: np.apply_along_axis(filtered_by_hand, -1, table, top_k, top_p)
    with np.errstate(divide="ignore"):
        logits = [[np.log(table) for table in tables] for tables in TABLES[case]]
    decoding = Decoding(False, 1.0, top_k=top_k, top_p=top_p)
    target, draft = ([token_distribution(jnp.asarray(x), decoding) for x in tables] for tables in logits)
    for ours, table in zip(target, TABLES[case][0]):
        np.testing.assert_allclose(ours, by_hand(table), atol=1e-12)
    exact = np.ones(())
    for table in TABLES[case][0]:
        exact = exact[..., None] * by_hand(table)
    got = output_distribution(target, draft, 2, acceptance_probability, residual_distribution)
    assert np.max(np.abs(got - exact)) < 1e-6


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("broken", BROKEN_RULES)
def test_enumeration_notices_a_broken_rule(broken):
    assert enumeration_error(*TABLES["random"], 2, **BROKEN_RULES[broken]) > 1e-3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", TABLES)
def test_accepted_share_is_the_overlap(case):
    # Sum of q min(1, p / q) = sum of min(p, q) = 1 - total variation.
    p, q = (np.asarray(table[1]) for table in TABLES[case])
    accepted = np.sum(q * acceptance_probability(jnp.asarray(p), jnp.asarray(q)), axis=-1)
    np.testing.assert_allclose(accepted, 1 - np.abs(p - q).sum(axis=-1) / 2, atol=1e-12)


def test_rules_by_hand():
    p, q = jnp.array([0.5, 0.3, 0.2, 0.0]), jnp.array([0.2, 0.6, 0.0, 0.2])
    np.testing.assert_allclose(acceptance_probability(p, q), [1, 0.5, 1, 0], rtol=1e-6)
    # Excess 0.3, 0, 0.2, 0.
    np.testing.assert_allclose(residual_distribution(p, q), [0.6, 0, 0.4, 0], rtol=1e-6)
    np.testing.assert_array_equal(residual_distribution(p, p), p)
    np.testing.assert_allclose(residual_distribution(p, jnp.zeros(4)), p, rtol=1e-6)


def test_verdicts_by_hand():
    # Two drafted tokens: token 1 passes where u < 0.25 / 0.5, token 0 where u < 0.3 / 0.4; the third place is the bonus.
    p = jnp.array([[0.5, 0.25, 0.25], [0.3, 0.1, 0.6], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    q = jnp.array([[0.25, 0.5, 0.25], [0.4, 0.5, 0.1], [0.9, 0.1, 0.0], [0.0, 0.0, 0.0]])
    drafted = jnp.array([1, 0, 2, 2])
    verify = jax.jit(verify_chain)

    def verdict(uniforms, draft_length):
        result = verify(p, q, drafted, jnp.asarray(draft_length), jnp.array([*uniforms, 0.0, 0.0]), jax.random.key(3))
        return int(result.accepted), int(result.next_token)

    # Residuals: row 0 has only token 0 in excess, row 1 only token 2, row 2 without a draft only token 1.
    assert verdict([0.51, 0.0], 2) == (0, 0)
    assert verdict([0.49, 0.76], 2) == (1, 2)
    assert verdict([0.49, 0.74], 2) == (2, 1)
    # With one draft the second token is padding: the bonus comes from row 1 itself.
    assert verdict([0.49, 0.0], 1)[0] == 1
    assert verdict([0.0, 0.0], 0)[0] == 0


@pytest.mark.network
def test_impossible_tokens_never_pass_underrated_ones_always():
    p, q = jnp.array([[0.0, 1.0], [0.5, 0.5]]), jnp.array([[0.7, 0.3], [0.0, 0.0]])
    verify = lambda token, u: verify_chain(
        p, q, jnp.array([token, 0]), jnp.asarray(1), jnp.array([u, 0.0]), jax.random.key(0)
    )
    assert verify(0, 0.0).accepted == 0
    assert verify(1, float(np.nextafter(np.float32(1), np.float32(0)))).accepted == 1
