import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from long_runs import optimized_jit
from rules_samples import dirichlet, table_pairs
from scipy import stats

from jaxspec.speculate import tree_rules
from jaxspec.speculate.tree_rules import sample_candidates, sibling_chances, verify_tree
from jaxspec.trees import k_ary_paths, tree_from_paths, tree_paths

VOCAB, RANKS, DEPTH = 4, 3, 3
TREES = {
    "chain": [(0,), (0, 0), (0, 0, 0)],
    "star": [(0,), (1,), (2,)],
    "binary": list(k_ary_paths(2, depth=3)),
    "ragged": [(0,), (1,), (2,), (0, 1), (0, 2), (1, 0), (0, 1, 0), (0, 1, 1)],
    "ranks left out": [(1,), (2,), (1, 2), (2, 0), (2, 2), (1, 2, 1)],
}


# --- Exact enumeration: any tree, tables that depend on all tokens before ------------------------------------------------


def table_cases():
    rng = np.random.default_rng(7)
    tables = lambda draw: [draw((VOCAB,) * length) for length in range(DEPTH + 1)]
    cases = {name: tuple(map(tables, pair)) for name, pair in table_pairs(rng, VOCAB, 0.6).items()}
    same = tables(dirichlet(rng, VOCAB))
    return cases | {"equal": (same, same)}


TABLES = table_cases()
ORDERS = np.array(list(itertools.permutations(range(VOCAB), RANKS)))


def order_probability(q, order):
    """P(these candidates in this order) of sampling without replacement; the first others follow when nothing is left."""
    probability, left = 1.0, q.copy()
    for place, token in enumerate(order):
        total = left.sum()
        if total > 0:
            probability *= left[token] / total
        else:
            others = [t for t in range(VOCAB) if t not in order[:place]]
            probability *= float(token == others[0])
        left[token] = 0
    return probability


def output_distribution(paths, target, draft, law, chances):
    """Joint distribution of the first DEPTH + 1 tokens that one cycle, and the target after it, put out.

    Candidates after one context are independent of those after another, so every way is followed node by node.
    """
    names = {()} | set(paths)
    over_orders = jax.vmap(chances, in_axes=(None, None, 0, None))

    def rest(context):
        """The target's own tokens from here on, "remaining tokens"."""
        probability = np.ones(())
        for length in range(len(context), DEPTH + 1):
            probability = probability[..., None] * target[length][context]
        return probability

    @functools.cache
    def from_node(path, context):
        tried = np.array([(*path, rank) in names for rank in range(RANKS)])
        if not tried.any():
            return rest(context)
        p, q = target[len(context)][context], draft[len(context)][context]
        if law == "top":
            orders, weights, draft_row = np.argsort(-q, kind="stable")[None, :RANKS], [1.0], None
        else:
            orders, weights, draft_row = ORDERS, [order_probability(q, order) for order in ORDERS], jnp.asarray(q)
        found = jax.tree.map(
            np.asarray, over_orders(jnp.asarray(p), draft_row, jnp.asarray(orders), jnp.asarray(tried))
        )
        after = np.stack([rest((*context, token)) for token in range(VOCAB)])
        total = np.zeros_like(after)
        for order, alive, chance, residual in zip(orders.tolist(), weights, found.chance, found.residual):
            for rank, token in enumerate(order):
                if alive * chance[rank] > 0:
                    total[token] += alive * chance[rank] * from_node((*path, rank), (*context, token))
                alive *= 1 - chance[rank]
            total += alive * residual.reshape(-1, *[1] * (after.ndim - 1)) * after
        return total

    return from_node((), ()), rest(())


@pytest.fixture(scope="module")
def jitted_chances():
    return jax.jit(sibling_chances)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("law", ["top", "sampled"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("case", TABLES)
def test_output_has_the_targets_distribution(jitted_chances, case, tree, law):
    got, exact = output_distribution(TREES[tree], *TABLES[case], law, jitted_chances)
    np.testing.assert_allclose(got, exact, atol=1e-6)


def refused_without_residual(target, draft, candidates, tried):
    found = sibling_chances(target, draft, candidates, tried)
    return found._replace(residual=target)


def residual_never_updated(target, draft, candidates, tried):
    rows = [sibling_chances(target, draft, candidates, tried & (jnp.arange(RANKS) == r)) for r in range(RANKS)]
    return rows[-1]._replace(chance=jnp.stack([row.chance[r] for r, row in enumerate(rows)]))


def with_replacement(target, draft, candidates, tried):
    """The law of later candidates forgets the earlier ones."""
    if draft is None:
        return sibling_chances(target, jnp.full_like(target, 1 / VOCAB), candidates, tried)
    residual, chance = target, []
    for rank in range(RANKS):
        token = candidates[rank]
        ratio = jnp.minimum(residual[token] / draft[token], 1.0)
        excess = jnp.maximum(residual - draft, 0)
        residual = jnp.where(tried[rank], excess / excess.sum(), residual)
        chance.append(jnp.where(tried[rank], ratio, 0.0))
    return tree_rules.SiblingChances(jnp.stack(chance), residual)


@pytest.mark.network(3)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("law", ["top", "sampled"])
@pytest.mark.parametrize("broken", [refused_without_residual, residual_never_updated, with_replacement])
def test_enumeration_notices_a_broken_rule(broken, law):
    got, exact = output_distribution(TREES["ragged"], *TABLES["random"], law, jax.jit(broken))
    assert np.max(np.abs(got - exact)) > 1e-3


# --- Pieces worked by hand ---------------------------------------------------------------------------------------------


def test_chances_worked_by_hand():
    # p = (0.5, 0.3, 0.2), candidates 1 then 0, sampled from q = (0.2, 0.6, 0.2).
    # Candidate 1: 0.3 / 0.6 = 0.5. Refused: p - q = (0.3, 0, 0), normalised (1, 0, 0).
    # Candidate 0: its law is q without token 1, (0.5, 0, 0.5): min(1, 1 / 0.5) = 1.
    p, q = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.6, 0.2])
    found = sibling_chances(p, q, jnp.array([1, 0]), jnp.array([True, True]))
    np.testing.assert_allclose(found.chance, [0.5, 1.0], rtol=1e-6)
    # The likeliest tokens are certain: 0.3, then 0.5 / 0.7; (0, 0, 1) is left.
    found = sibling_chances(p, None, jnp.array([1, 0]), jnp.array([True, True]))
    np.testing.assert_allclose(found.chance, [0.3, 0.5 / 0.7], rtol=1e-6)
    np.testing.assert_allclose(found.residual, [0, 0, 1], atol=1e-6)
    # A candidate that is not in the tree changes the law of the next, not what is left of p.
    found = sibling_chances(p, q, jnp.array([1, 0]), jnp.array([False, True]))
    np.testing.assert_allclose(found.chance, [0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(found.residual, [0, 1, 0], atol=1e-6)


def test_candidates_are_sampled_without_replacement():
    q = np.array([0.55, 0.05, 0.3, 0.1])
    drawn = np.asarray(
        sample_candidates(jnp.broadcast_to(jnp.asarray(q, jnp.float32), (200_000, 4)), jax.random.key(3), 3)
    )
    assert np.all(np.diff(np.sort(drawn, axis=1), axis=1) > 0)
    counts = np.array([np.sum(np.all(drawn == order, axis=1)) for order in ORDERS])
    expected = len(drawn) * np.array([order_probability(q, order) for order in ORDERS])
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    # Fewer tokens than candidates: the first of the others follow.
    few = sample_candidates(jnp.array([[0.0, 0.0, 1.0, 0.0]]), jax.random.key(0), 3)
    np.testing.assert_array_equal(few, [[2, 0, 1]])


# --- Whole verifications, a million of them ------------------------------------------------------------------------------

MARKOV_P, MARKOV_Q = (np.asarray(TABLES["random"][i][1], np.float32) for i in (0, 1))  # by the last token
MILLION, CHUNK, FIRST_TOKEN = 1_000_000, 100_000, 2


def simulate(law, tree):
    """Counts of the first two tokens of a cycle (the target goes on where the cycle gave only one)."""
    paths = tree_paths(tree)
    depths = max(map(len, paths))
    parent = np.asarray(tree.parent)
    p, q = jnp.asarray(MARKOV_P), jnp.asarray(MARKOV_Q)

    def one(key):
        at = lambda purpose, index: jax.random.fold_in(jax.random.fold_in(key, purpose), index)
        last, tokens, candidates = [jnp.asarray(FIRST_TOKEN)], [], []
        propose = lambda row, token: (
            jax.lax.top_k(q[token], RANKS)[1] if law == "top" else sample_candidates(q[token], at(0, row), RANKS)
        )
        candidates.append(propose(0, last[0]))
        for node, path in enumerate(paths):
            token = candidates[parent[node] + 1][path[-1]]
            tokens.append(token)
            candidates.append(propose(node + 1, token))
        rows = jnp.stack([last[0], *tokens])
        verdict = verify_tree(
            tree,
            p[rows],
            None if law == "top" else q[rows],
            jnp.stack(candidates),
            jax.random.uniform(at(1, 0), (depths, RANKS)),
            at(2, 0),
        )
        first = jnp.where(verdict.accepted > 0, jnp.stack(tokens)[verdict.path[0]], verdict.next_token)
        own = jax.random.categorical(at(3, 0), jnp.log(p[first]))
        deeper = jnp.stack(tokens)[verdict.path[1]] if depths > 1 else verdict.next_token
        second = jnp.where(verdict.accepted > 1, deeper, jnp.where(verdict.accepted == 1, verdict.next_token, own))
        return first * VOCAB + second

    run = optimized_jit(lambda keys: jnp.bincount(jax.vmap(one)(keys), length=VOCAB**2))
    counts = np.zeros(VOCAB**2)
    for chunk in range(MILLION // CHUNK):
        counts += np.asarray(run(jax.random.split(jax.random.key(chunk), CHUNK)))
    return counts


def p_value(counts):
    first = MARKOV_P[FIRST_TOKEN].astype(np.float64)
    expected = (first[:, None] * MARKOV_P).reshape(-1)
    return stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue


@pytest.mark.network
@pytest.mark.parametrize("law", ["top", "sampled"])
def test_a_million_cycles_have_the_targets_distribution(law):
    assert p_value(simulate(law, tree_from_paths(TREES["ragged"]))) > 1e-4


@pytest.mark.network
@pytest.mark.parametrize("broken", [refused_without_residual, residual_never_updated])
def test_a_million_cycles_notice_a_broken_rule(monkeypatch, broken):
    monkeypatch.setattr(tree_rules, "sibling_chances", broken)
    assert p_value(simulate("sampled", tree_from_paths(TREES["ragged"]))) < 1e-6
