import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.speculation.plan import expected_tree_tokens
from jaxspec.trees import (
    ROOT,
    depth_survival,
    expected_tokens,
    node_acceptance,
    node_draw_probability,
    pad_tree,
    public_tree,
    reach_probability,
    simulate_nodes,
    simulate_walks,
    tokens_variance,
    tree_from_parents,
    tree_from_paths,
)

pytestmark = pytest.mark.network

SIMULATIONS = [simulate_nodes, simulate_walks]

# Two guesses for the first token (0.5, 0.2), after the first of them guesses 0 and 2 (0.4, 0.3), after (0, 2) guess 1 (0.9).
TABLE = jnp.array([[0.5, 0.2, 0.1], [0.4, 0.1, 0.3], [0.05, 0.9, 0.0]])
PATHS = [(0,), (1,), (0, 0), (0, 2), (0, 2, 1)]


def random_paths(rng, nodes):
    """A ragged tree in which ranks are left out and siblings are added in any order of rank."""
    depth_bias = rng.choice([0.1, 1.0, 8.0])
    paths = [()]
    while len(paths) <= nodes:
        weight = np.array([depth_bias ** min(len(path), 9) for path in paths])
        above = paths[rng.choice(len(paths), p=weight / weight.sum())]
        path = (*above, int(rng.integers(0, 9)))
        if path not in paths:
            paths.append(path)
    return paths[1:]


def random_table(rng, levels, ranks):
    """Rows that sum to at most 1, some of them to 1, with zeros in between."""
    rows = rng.dirichlet(np.full(ranks, 0.4), size=levels)
    rows[rng.random(rows.shape) < 0.1] = 0.0
    return rows * np.where(rng.random((levels, 1)) < 0.2, 1.0, rng.random((levels, 1)))


def depth_law(paths, table):
    """P(exactly d drafted tokens accepted) by going through all ends of a cycle, in plain Python."""
    law = [0.0] * (len(paths) + 1)

    def visit(path, probability):
        children = [p for p in paths if p[:-1] == path and len(p) == len(path) + 1]
        chances = [float(table[len(path)][p[-1]]) for p in children]
        law[len(path)] += probability * (1.0 - sum(chances))
        for child, chance in zip(children, chances):
            visit(child, probability * chance)

    visit((), 1.0)
    return np.array(law)


def test_expectation_by_hand():
    tree = tree_from_paths(PATHS, size=7)
    acceptance = node_acceptance(tree, TABLE)
    np.testing.assert_allclose(acceptance, [0.5, 0.2, 0.4, 0.3, 0.9, 0, 0], rtol=1e-6)
    # Reached: 0.5, 0.2, 0.5·0.4 = 0.2, 0.5·0.3 = 0.15, 0.15·0.9 = 0.135.
    np.testing.assert_allclose(reach_probability(tree, acceptance), [0.5, 0.2, 0.2, 0.15, 0.135, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(depth_survival(tree, acceptance), [0.7, 0.35, 0.135, 0, 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(expected_tokens(tree, acceptance), 1 + 1.185, rtol=1e-6)
    # E[depth²] = 0.7 + 3·0.35 + 5·0.135 = 2.425.
    np.testing.assert_allclose(tokens_variance(tree, acceptance), 2.425 - 1.185**2, rtol=1e-5)
    # The second child is asked only where the first was not: 0.2 / 0.5 and 0.3 / 0.6.
    np.testing.assert_allclose(node_draw_probability(tree, acceptance), [0.5, 0.4, 0.4, 0.5, 0.9, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("simulate", SIMULATIONS)
def test_simulation_by_hand(simulate):
    tree = tree_from_paths(PATHS, size=7)
    trials = 150_001
    result = simulate(tree, node_acceptance(tree, TABLE), jax.random.key(11), num_trials=trials)
    expected = np.array([0.7, 0.35, 0.135, 0, 0, 0, 0])
    error = np.sqrt(expected * (1 - expected) / trials)
    assert np.all(np.abs(np.asarray(result.survivors) / trials - expected) <= 4 * error)
    np.testing.assert_allclose(result.mean, 1 + np.sum(np.asarray(result.survivors) / trials), rtol=1e-6)
    np.testing.assert_allclose(result.standard_error, np.sqrt((2.425 - 1.185**2) / trials), rtol=0.01)


@pytest.fixture(scope="module")
def random_trees():
    """100 random trees, each with its own table, and their laws by brute force."""
    rng = np.random.default_rng(5)
    paths = [random_paths(rng, int(rng.integers(1, 65))) for _ in range(100)]
    tables = [random_table(rng, 64, 9) for _ in paths]
    # Numbered as `tree_from_paths` does, with the ranks of siblings rising, and in the order in which they grew.
    trees = []
    for i, grown in enumerate(paths):
        number = {(): ROOT} | {path: node for node, path in enumerate(grown)}
        trees.append(
            tree_from_parents([number[p[:-1]] for p in grown], rank=[p[-1] for p in grown])
            if i % 2
            else tree_from_paths(grown)
        )
    laws = np.array([np.pad(depth_law(p, t), (0, 64 - len(p))) for p, t in zip(paths, tables)])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(pad_tree(tree, size=64) for tree in trees))
    return stacked, jax.vmap(node_acceptance)(stacked, jnp.asarray(np.array(tables), jnp.float32)), laws


def test_expectation_against_all_ends_of_a_cycle(random_trees):
    trees, acceptance, laws = random_trees
    mean = laws @ np.arange(65)
    np.testing.assert_allclose(jax.vmap(expected_tokens)(trees, acceptance), 1 + mean, rtol=1e-5)
    variance = laws @ np.arange(65) ** 2 - mean**2
    np.testing.assert_allclose(jax.vmap(tokens_variance)(trees, acceptance), variance, rtol=1e-4, atol=1e-5)
    survival = 1 - np.cumsum(laws, axis=1)[:, :-1]
    np.testing.assert_allclose(jax.vmap(depth_survival)(trees, acceptance), survival, atol=1e-5)


@pytest.mark.parametrize("simulate", SIMULATIONS)
def test_simulation_is_within_4_standard_errors(random_trees, simulate):
    trees, acceptance, laws = random_trees
    trials = 16_384
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(2), i))(jnp.arange(100))
    result = jax.vmap(lambda t, a, k: simulate(t, a, k, num_trials=trials))(trees, acceptance, keys)
    mean = laws @ np.arange(65)
    error = np.sqrt(np.maximum(laws @ np.arange(65) ** 2 - mean**2, 0) / trials)
    # Where a chance is next to 0 or 1, one more trial is within what 4 standard errors of a binomial miss.
    score = (np.asarray(result.mean) - 1 - mean) / np.maximum(error, 0.25 / trials)
    assert np.max(np.abs(score)) <= 4
    # 100 scores of mean 0 and variance 1: a small bias of all trees would show here.
    assert abs(np.sum(score)) <= 4 * np.sqrt(100)
    assert 0.6 <= np.mean(score**2) <= 1.6
    survival = 1 - np.cumsum(laws, axis=1)[:, :-1]
    spread = np.sqrt(np.clip(survival * (1 - survival), 0, None) / trials)
    gap = np.abs(np.asarray(result.survivors) / trials - survival)
    # Thousands of shares are compared, so 5 standard errors, and rare events count as Poisson.
    assert np.all(gap <= 5 * spread + 5 / trials)


@pytest.mark.parametrize("simulate", SIMULATIONS)
def test_certain_trees_are_simulated_exactly(simulate):
    run = jax.jit(lambda t, a: simulate(t, a, jax.random.key(0), num_trials=1001))
    chain = tree_from_parents([ROOT, 0, 1, 2, 3], size=6)
    always, never = run(chain, jnp.ones(6)), run(chain, jnp.zeros(6))
    assert (float(always.mean), float(always.standard_error)) == (6.0, 0.0)
    assert (float(never.mean), float(never.standard_error)) == (1.0, 0.0)
    assert never.survivors.tolist() == [0] * 6
    # Ranks 0 and 1 take all, so that 2 and what follows it is never reached.
    star = tree_from_parents([ROOT, ROOT, ROOT, 2], rank=[1, 0, 2, 0], size=6)
    assert run(star, jnp.array([0.7, 0.3, 0.0, 1.0, 0.0, 0.0])).survivors.tolist() == [1001, 0, 0, 0, 0, 0]


def test_expectation_is_that_of_the_hardware_models():
    tree = public_tree("medusa_63", size=70)
    table = random_table(np.random.default_rng(1), 4, 10)
    acceptance = node_acceptance(tree, jnp.asarray(table, jnp.float32))
    parents = np.asarray(tree.parent)[:63]
    expected = expected_tree_tokens(parents, acceptance[:63])
    np.testing.assert_allclose(expected_tokens(tree, acceptance), expected, rtol=1e-6)


@pytest.mark.parametrize("function", [expected_tokens, tokens_variance])
def test_gradient_against_differences_at_the_ends_too(x64, function):
    tree = tree_from_paths(PATHS, size=6)
    point = jnp.array([1.0, 0.0, 0.4, 0.35, 0.0, 0.0], jnp.float64)
    f = jax.jit(lambda a: function(tree, a))
    step = 1e-5
    # Polynomials in the acceptances, so that central differences reach beyond the ends of their range.
    differences = [(f(point.at[i].add(step)) - f(point.at[i].add(-step))) / (2 * step) for i in range(6)]
    batch = jax.jit(jax.vmap(jax.grad(lambda a: function(tree, a))))(jnp.stack([point, point * 0.3]))
    np.testing.assert_allclose(batch[0], differences, rtol=1e-6, atol=1e-8)
    assert batch[0][5] == 0
