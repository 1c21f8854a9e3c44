import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.trees import tree_from_parents
from jaxspec.trees.expectation import expected_tokens, node_acceptance, reach_probability
from jaxspec.trees.optimal_tree import optimal_trees, tree_capacity
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import expected_tokens_by_size, maximal_tree
from jaxspec.trees.soft_search import search_sizes, search_with_price
from jaxspec.trees.soft_trees import log_rate, node_paths, sized_inclusion, soft_depth, soft_inclusion

#      root
#    0      1
#   2 3     4
#   5
RAGGED = RankedTree(np.array([-1, -1, 0, 0, 1, 2]), np.array([0, 2, 1, 0, 0, 3]))
DEPTH, BRANCHES, NODES = 4, 3, 31


@pytest.fixture
def _promotes():
    # optax's Adam raises a float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def full_tree():
    return maximal_tree(tree_capacity(DEPTH, BRANCHES), depth=DEPTH, max_branching=BRANCHES)


@pytest.fixture(scope="module")
def solve():
    """Expected tokens of the best trees, by the exact programme."""
    run = jax.jit(optimal_trees, static_argnames=("max_nodes", "max_depth"))
    return lambda table, nodes, depth: np.asarray(run(table, max_nodes=nodes, max_depth=depth).expected_tokens)


def random_table(seed):
    rng = np.random.default_rng(seed)
    if seed % 2:
        return rng.dirichlet(np.full(BRANCHES + 1, 0.6), DEPTH)[:, :BRANCHES].astype(np.float32)
    return (rng.uniform(size=(DEPTH, BRANCHES)) / BRANCHES).astype(np.float32)


def reach_of(tree, table):
    return np.diff(np.asarray(expected_tokens_by_size(tree, jnp.asarray(table))))


def value(tree, table):
    """Expected tokens of a tree with ranks, in plain Python."""
    depth, reached = [], []
    for above, rank in zip(tree.parent.tolist(), tree.rank.tolist()):
        assert -1 <= above < len(depth)
        depth.append(depth[above] + 1 if above != -1 else 0)
        reached.append(float(table[depth[-1]][rank]) * (reached[above] if above != -1 else 1.0))
    assert len(set(zip(tree.parent.tolist(), tree.rank.tolist()))) == len(depth)
    return 1 + sum(reached), max(depth, default=-1) + 1


def test_inclusion_by_hand():
    paths = node_paths(RAGGED)
    assert paths.ancestors.tolist() == [[0, 6, 6], [1, 6, 6], [0, 2, 6], [0, 3, 6], [1, 4, 6], [0, 2, 5]]
    # Sigmoids 1/2, 1/4, 1/3, 2/3, 1/5, 3/4, at a temperature that doubles their logits.
    chances = np.array([1 / 2, 1 / 4, 1 / 3, 2 / 3, 1 / 5, 3 / 4])
    logits = jnp.asarray(0.5 * np.log(chances / (1 - chances)), jnp.float32)
    found = soft_inclusion(paths, logits, temperature=0.5)
    np.testing.assert_allclose(found, [1 / 2, 1 / 4, 1 / 6, 1 / 3, 1 / 20, 1 / 8], rtol=1e-5)
    # The most included of each level: 1/2, 1/3, 1/8.
    np.testing.assert_allclose(soft_depth(paths, found), 1 / 2 + 1 / 3 + 1 / 8, rtol=1e-5)


def test_whole_inclusions_are_whole_trees():
    paths = node_paths(RAGGED)
    far = jnp.asarray([9.0, -9.0, 9.0, -9.0, 9.0, -9.0])  # 4 is wanted, but not its parent
    found = soft_inclusion(paths, jnp.stack([far, far + 99, far - 99]), temperature=0.05)
    np.testing.assert_allclose(found, [[1, 0, 1, 0, 0, 0], [1] * 6, [0] * 6], atol=1e-6)
    np.testing.assert_allclose(soft_depth(paths, found), [2, 3, 0], atol=1e-6)
    tree, table = tree_from_parents(RAGGED.parent, rank=RAGGED.rank), jnp.full((3, 4), 0.3)
    reach = reach_probability(tree, node_acceptance(tree, table))
    pruned = tree_from_parents([-1, 0], rank=[0, 1])
    expected = expected_tokens(pruned, node_acceptance(pruned, table))
    np.testing.assert_allclose(1 + found[0] @ reach, expected, rtol=1e-6)


jitted_inclusion = jax.jit(sized_inclusion)


@given(seed=st.integers(0, 9999), size=st.floats(0.05, 6.0), temperature=st.floats(0.05, 2.0))
def test_inclusions_sum_to_the_size_asked_for(seed, size, temperature):
    logits = jnp.asarray(np.random.default_rng(seed).normal(size=6) * 3, jnp.float32)
    found = np.asarray(jitted_inclusion(node_paths(RAGGED), logits, size, temperature=temperature))
    assert found.sum() == pytest.approx(size, rel=2e-3)
    assert np.all((found >= 0) & (found <= 1 + 1e-6))
    for node, above in enumerate(RAGGED.parent.tolist()):
        assert above == -1 or found[node] <= found[above] * (1 + 1e-6)


def test_gradients(gradient_check, jit, x64):
    paths = node_paths(RAGGED)
    rng = np.random.default_rng(2)
    logits, reach = jnp.asarray(rng.normal(size=6)), jnp.asarray(rng.uniform(size=6))
    weight = jnp.asarray(rng.normal(size=6))
    # The threshold moves with the logits; together they cannot change the count.
    included = lambda at, size: sized_inclusion(paths, at, size, temperature=0.6)
    check = gradient_check(lambda at, size: weight @ included(at, size))
    for size in (0.3, 2.0, 4.6):
        slopes = check(logits, size)
        assert abs(float(jnp.sum(slopes))) < 1e-4 * float(jnp.max(jnp.abs(slopes)))
    of_count = jit(jax.grad(lambda at: jnp.sum(included(at, 2.0))))(logits)
    np.testing.assert_allclose(of_count, np.zeros(6), atol=1e-6)

    def rate(numbers):
        price = lambda length, depth: numbers["fixed"] + numbers["per_token"] * length**1.3 + 0.2 * depth
        return log_rate(paths, numbers["logits"], reach, price, temperature=0.7)[0]

    # Logits and hardware together.
    gradient_check(rate)({"logits": logits, "fixed": jnp.asarray(1.0), "per_token": jnp.asarray(0.1)})
    # Nodes 0 and 1 are included alike, a kink of the depth: each gets half of the slope of the larger, σ(1 − σ) at 0.3.
    tied = jnp.asarray([0.3, 0.3, -40.0, -40.0, -40.0, -40.0])
    slopes = jit(jax.grad(lambda at: soft_depth(paths, soft_inclusion(paths, at, temperature=1.0))))(tied)
    sigmoid = 1 / (1 + np.exp(-0.3))
    np.testing.assert_allclose(slopes[:2], np.full(2, sigmoid * (1 - sigmoid) / 2), rtol=1e-6)


@pytest.mark.usefixtures("_promotes")
def test_every_size_is_within_a_hundredth_of_the_optimum(full_tree, solve):
    worst = 0.0
    for seed in range(4):
        table = random_table(seed)
        found = search_sizes(full_tree, reach_of(full_tree, table), max_nodes=NODES, steps=120)
        best = solve(table, NODES, DEPTH)[1:]
        for n, tree in enumerate(found.trees, 1):
            assert tree.parent.size == n
            assert value(tree, table)[0] == pytest.approx(found.expected_tokens[n - 1], rel=1e-5)
        assert np.all(found.expected_tokens <= best * (1 + 1e-5))
        worst = max(worst, float(np.max(1 - found.expected_tokens / best)))
        np.testing.assert_allclose(found.inclusion.sum(axis=1), np.arange(1, NODES + 1), rtol=1e-4)
        # It climbs, and what is cut off at the end is not far from what was soft.
        assert np.all(found.history[-1] >= found.history[0] - 1e-4)
        assert np.max(np.abs(found.history[-1] - found.expected_tokens)) < 0.05
    assert worst < 0.01


@pytest.mark.usefixtures("_promotes")
def test_all_nodes_and_one_node():
    reach = np.array([0.3, 0.5, 0.2, 0.1, 0.4, 0.05])
    found = search_sizes(RAGGED, reach, max_nodes=6, steps=60)
    assert found.trees[0].rank.tolist() == [2]  # node 1
    np.testing.assert_allclose(found.expected_tokens[[0, 1, 5]], [1.5, 1.9, 2.55], rtol=1e-6)
    assert found.trees[5].parent.size == 6
    assert found.history.shape == (60, 6)


PRICES = {
    "roofline and levels": lambda length, depth: jnp.maximum(1.0, length / 9.0) + 0.08 * depth,
    "per token and level": lambda length, depth: 1 + 0.02 * length + 0.05 * depth,
    "roofline": lambda length, depth: jnp.maximum(1.0, length / 14.0) + 0.0 * depth,
}


@pytest.mark.usefixtures("_promotes")
@pytest.mark.parametrize("name", PRICES)
def test_gradient_search_chooses_size_and_depth(full_tree, solve, name):
    price, gaps = PRICES[name], []
    for seed in range(20, 26):
        table = random_table(seed)
        best = 1 / float(price(1.0, 0.0))
        for depth in range(1, DEPTH + 1):
            nodes = min(40, tree_capacity(depth, BRANCHES))
            tokens = solve(table, nodes, depth)
            rates = [tokens[n] / float(price(1.0 + n, float(depth))) for n in range(1, nodes + 1)]
            best = max(best, *rates)
        found = search_with_price(full_tree, reach_of(full_tree, table), price, steps=200)
        tokens, depth = value(found.tree, table)
        assert tokens == pytest.approx(found.expected_tokens, rel=1e-5)
        assert float(price(1.0 + found.tree.parent.size, float(depth))) == pytest.approx(found.price, rel=1e-5)
        gaps.append(1 - tokens / found.price / best)
    assert min(gaps) > -1e-5
    assert np.mean(gaps) < 0.01
    assert max(gaps) < 0.03


@pytest.mark.usefixtures("_promotes")
def test_no_tree_where_only_a_small_one_would_be_cheaper():
    # A price that saturates: every soft run goes on to grow, and none of them ends without nodes.
    star = RankedTree(np.full(8, -1), np.arange(8))
    price = lambda length, depth: 1.0 + 1.2 * jnp.tanh(6.0 * depth)
    found = search_with_price(star, np.full(8, 0.1), price, steps=60)
    assert found.tree.parent.size == 0
    assert found.expected_tokens / found.price == pytest.approx(1.0)


@pytest.mark.usefixtures("_promotes")
def test_no_tree_where_drafting_does_not_pay():
    reach = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.05])
    found = search_with_price(RAGGED, reach, lambda length, depth: length + depth, steps=60)
    assert found.tree.parent.size == 0
    assert (found.expected_tokens, found.price) == (1.0, 1.0)
    # What costs nothing is taken whole, and costs that do not matter change nothing.
    free = search_with_price(RAGGED, reach, lambda length, depth: 3.0 + 1e-6 * (length + depth), steps=60)
    assert free.tree.parent.size == 6
    assert free.verification_length[-1].max() == pytest.approx(7, abs=0.1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: search_sizes(RAGGED, np.ones(5), max_nodes=2), "each of 6 nodes"),
        (lambda: search_sizes(RAGGED, np.full(6, 1.2), max_nodes=2), "from 0 to 1"),
        (lambda: search_sizes(RAGGED, np.ones(6), max_nodes=7), "1 to 6"),
        (lambda: search_sizes(RAGGED, np.ones(6), max_nodes=1, temperatures=(0.1, 1.0)), "larger to a smaller"),
        (lambda: search_sizes(RAGGED, np.ones(6), max_nodes=1, steps=0), "1 or more"),
        (lambda: search_with_price(RAGGED, np.ones(6), lambda x, d: x, starts=()), "no start"),
        (lambda: node_paths(RankedTree(np.zeros(0, int), np.zeros(0, int))), "one or more nodes"),
        (lambda: node_paths(RankedTree(np.array([0]), np.array([0]))), "number parents first"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
