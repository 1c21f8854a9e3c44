import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jaxspec.errors import InputError
from jaxspec.trees import (
    ROOT,
    UNKNOWN,
    RankTraces,
    aat_by_size,
    acceptance_table,
    accepted_nodes,
    cycles_along_text,
    node_reach,
    paired_difference,
    prior_scores_from_traces,
    public_tree,
    ratio_of_totals,
    simulate_traces,
    stack_trees,
    tree_from_parents,
    tree_from_paths,
    tree_paths,
    unstack_trees,
)
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.searches import depth_first_growth, greedy_growth, maximal_tree, width_first_growth

#       root
#     0      1        ranks 0 and 2
#    2 3     4        ranks 1 and 0, 0
#    |
#    5                rank 3
RAGGED = tree_from_parents([ROOT, ROOT, 0, 0, 1, 2], rank=[0, 2, 1, 0, 0, 3], size=8)

VOCABULARY = 7


class ToyDraft:
    """A draft that ranks the vocabulary by a hash of all tokens before, and is right often."""

    def __init__(self, text, skew):
        self.text, self.skew = text, skew

    def ranking(self, context):
        rng = np.random.default_rng([len(context), *context])
        order = rng.permutation(VOCABULARY).tolist()
        # Along the text the text's token tends to the front; off it the draft does not know better.
        if context == self.text[: len(context)] and len(context) < len(self.text):
            order.remove(self.text[len(context)])
            order.insert(min(int(rng.geometric(self.skew)) - 1, VOCABULARY - 1), self.text[len(context)])
        return order


def toy_traces(rng, texts, tokens, depth, prompt=3):
    """Texts of different lengths, their drafts, and the traces: root s is the last of prompt + s tokens."""
    lengths = [prompt + tokens + int(rng.integers(0, 4)) for _ in range(texts)]
    whole = [rng.integers(0, VOCABULARY, n).tolist() for n in lengths]
    drafts = [ToyDraft(text, float(rng.uniform(0.35, 0.8))) for text in whole]
    rank = np.full((texts, max(lengths) - prompt, depth), UNKNOWN, np.int32)
    for t, (text, draft) in enumerate(zip(whole, drafts)):
        for start in range(lengths[t] - prompt):
            for d in range(depth):
                place = prompt + start + d
                if place < len(text):
                    rank[t, start, d] = draft.ranking(text[:place]).index(text[place])
    # What only fills the arrays must not be read: not UNKNOWN but a likely rank.
    starts = np.array(lengths) - prompt
    for t, n in enumerate(starts):
        rank[t, n:] = 0
    return whole, drafts, RankTraces(jnp.asarray(rank), jnp.asarray(starts, jnp.int32))


def decode(text, draft, paths, num_tokens, prompt=3):
    """Greedy tree decoding as it is done with networks: draft a token for every node, verify, accept, commit."""
    committed, cycles, accepted = text[:prompt], 0, dict.fromkeys(paths, 0)
    while len(committed) - prompt < num_tokens:
        drafted = {(): []}
        for path in sorted(paths, key=len):
            above = drafted[path[:-1]]
            drafted[path] = [*above, draft.ranking(committed + above)[path[-1]]]
        right = [p for p in drafted if committed + drafted[p] == text[: len(committed) + len(p)]]
        best = max(right, key=len)
        for d in range(1, len(best) + 1):
            accepted[best[:d]] += 1
        committed = text[: len(committed) + len(best) + 1]  # and the target's own token
        cycles += 1
    return cycles, len(committed) - prompt, [accepted[p] for p in paths]


@pytest.fixture(scope="module")
def toy():
    return toy_traces(np.random.default_rng(4), texts=5, tokens=34, depth=5)


def walk(paths, ranks):
    """The longest beginning of a rank path among the paths, in plain Python."""
    depth = 0
    while depth < len(ranks) and tuple(ranks[: depth + 1]) in paths:
        depth += 1
    return tuple(ranks[:depth])


def renewal(paths, traces, num_tokens):
    """Cycles and tokens per text from one root to the next, in plain Python."""
    found = []
    for rank in np.asarray(traces.rank).tolist():
        at = cycles = 0
        while at < num_tokens:
            at += len(walk(paths, rank[at])) + 1
            cycles += 1
        found.append((cycles, at))
    return np.array(found).T


def paths_of(growth, n):
    found = []
    for above, rank in zip(growth.parent.tolist(), growth.rank.tolist()):
        found.append((*(found[above] if above != ROOT else ()), rank))
    return found[:n]


def test_accepted_paths_by_hand(jit):
    rank = [
        [0, 1, 3, 0],  # nodes 0, 2, 5; the tree ends there
        [0, 1, 2, 0],  # 0, 2
        [2, 0, 0, 0],  # 1, 4
        [2, 1, 3, 0],  # 1
        [1, 0, 1, 3],  # no node of rank 1 below the root
        [0, 1, UNKNOWN, UNKNOWN],  # 0, 2, and 5 might have followed
        [0, 0, UNKNOWN, UNKNOWN],  # 0, 3, which has no child
        [UNKNOWN] * 4,
    ]
    found = jit(accepted_nodes)(RAGGED, jnp.asarray(rank, jnp.int32).reshape(2, 4, 4))
    assert found.depth.tolist() == [[3, 2, 2, 1], [0, 2, 2, 0]]
    assert found.node.tolist() == [[5, 2, 4, 1], [ROOT, 2, 3, ROOT]]
    assert found.known.tolist() == [[True] * 4, [True, False, True, False]]
    # A path as long as what was recorded may go on, too.
    short = accepted_nodes(RAGGED, jnp.asarray([[0, 1], [0, 0]], jnp.int32))
    assert short.known.tolist() == [False, True]


def test_cycles_by_hand(jit):
    # Accepted from root 0: node 0, so the next root is 2: nothing, 3: nodes 0, 2, 5, then 7.
    rank = np.full((1, 8, 3), 1, np.int32)
    rank[0, 0], rank[0, 2], rank[0, 3] = [0, 5, 5], [1, 0, 0], [0, 1, 3]
    rank[0, 1], rank[0, 4] = [2, 0, 0], [0, 0, 0]  # not visited
    traces = RankTraces(jnp.asarray(rank), jnp.asarray([8]))
    count = jit(lambda tokens: cycles_along_text(RAGGED, traces, num_tokens=tokens))
    found = count(7)
    assert (found.cycles.tolist(), found.generated.tolist(), found.complete.tolist()) == ([3], [7], [True])
    assert found.accepted.tolist() == [[2, 0, 1, 0, 0, 1, 0, 0]]
    assert count(4).cycles.tolist() == [3]  # the last cycle runs over
    assert count(4).generated.tolist() == [7]
    assert count(3).cycles.tolist() == [2]
    assert count(0).cycles.tolist() == [0]
    assert count(8).generated.tolist() == [8]
    assert count(9).complete.tolist() == [False]  # there is no root 8


@pytest.mark.parametrize(
    "tree",
    [
        RAGGED,
        tree_from_paths([(0,), (1,), (3,), (0, 0), (0, 1), (0, 0, 0), (3, 0), (0, 0, 0, 0), (0, 0, 0, 0, 1)]),
        tree_from_parents([ROOT, 0, 1, 2]),
        tree_from_parents([ROOT] * 7),
        tree_from_parents([ROOT], rank=[4]),
    ],
)
def test_cycles_are_those_of_decoding(toy, jit, tree):
    texts, drafts, traces = toy
    paths = tree_paths(
        tree_from_parents(
            np.asarray(tree.parent)[: int(tree.num_nodes)], rank=np.asarray(tree.rank)[: int(tree.num_nodes)]
        )
    )
    found = jit(lambda tree: cycles_along_text(tree, traces, num_tokens=28))(tree)
    expected = [decode(text, draft, paths, 28) for text, draft in zip(texts, drafts)]
    assert found.cycles.tolist() == [cycles for cycles, _, _ in expected]
    assert found.generated.tolist() == [generated for _, generated, _ in expected]
    assert found.accepted[:, : len(paths)].tolist() == [accepted for *_, accepted in expected]
    assert np.all(np.asarray(found.accepted[:, len(paths) :]) == 0)
    assert bool(jnp.all(found.complete))
    # A cycle gains what it accepts, and one more.
    np.testing.assert_array_equal(found.generated, found.cycles + jnp.sum(found.accepted, axis=1))


def test_texts_may_have_their_own_length_and_end(toy, jit):
    _, _, traces = toy
    tree = public_tree("eagle_25", size=31)
    asked = np.array([3, 28, 1, 17, 0])
    count = jit(lambda tokens: cycles_along_text(tree, traces, num_tokens=tokens))
    found = count(jnp.asarray(asked))
    for t, tokens in enumerate(asked):
        assert found.cycles[t] == count(int(tokens)).cycles[t]
    # No text has so many tokens; what was counted up to its end is told apart.
    assert not np.any(np.asarray(count(60).complete))


def test_a_path_that_is_cut_off_is_not_complete(toy, jit):
    _, _, traces = toy
    rank = np.asarray(traces.rank).copy()
    rank[:, 0, 1:] = UNKNOWN
    rank[0, 0], rank[1, 0, 0] = [6, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN], 0
    cut = RankTraces(jnp.asarray(rank), traces.num_starts)
    found = jit(lambda tree: cycles_along_text(tree, cut, num_tokens=1))(public_tree("chain_8"))
    assert found.complete.tolist()[:2] == [True, False]


@pytest.mark.parametrize("grow", [width_first_growth, depth_first_growth])
def test_every_size_at_once(toy, grow):
    _, _, traces = toy
    growth = grow(maximal_tree(23, depth=4))
    found = aat_by_size(growth, traces, num_tokens=27)
    assert found.verification_length.tolist() == list(range(2, 25))
    for n in range(1, 24):
        cycles, generated = renewal(set(paths_of(growth, n)), traces, 27)
        np.testing.assert_array_equal(found.cycles[n - 1], cycles)
        np.testing.assert_array_equal(found.generated[n - 1], generated)
        np.testing.assert_allclose(found.aat.mean[n - 1], generated.sum() / cycles.sum(), rtol=1e-6)
    # Its own tree, node by node.
    n = 14
    alone = cycles_along_text(tree_from_parents(growth.parent[:n], rank=growth.rank[:n]), traces, num_tokens=27)
    np.testing.assert_array_equal(alone.cycles, found.cycles[n - 1])


def test_sizes_that_are_not_complete_have_no_mean(toy):
    _, _, traces = toy
    # Chains beyond the recorded depth of 5: where five tokens are accepted, a sixth might have been.
    chain = RankedTree(np.arange(-1, 8), np.zeros(9, np.int64))
    certain = RankTraces(jnp.zeros_like(traces.rank), traces.num_starts)
    found = aat_by_size(chain, certain, num_tokens=20)
    np.testing.assert_allclose(found.aat.mean[:5], [2, 3, 4, 5, 6])
    assert np.all(np.isnan(found.aat.mean[5:]))
    assert np.all(np.isnan(found.aat.per_text[5:]))
    assert not np.any(np.asarray(found.complete[5:]))


def test_reach_by_plain_counting(toy, jit):
    _, _, traces = toy
    rank, starts = np.asarray(traces.rank).tolist(), np.asarray(traces.num_starts)
    tree = RAGGED
    paths = [(0,), (2,), (0, 1), (0, 0), (2, 0), (0, 1, 3)]
    roots = [r for t, n in enumerate(starts) for r in rank[t][:n] if UNKNOWN not in r[:3]]
    assert len(roots) == starts.sum() - 2 * len(starts)  # the last two of each text do not reach down to depth 3
    ends = [walk(set(paths), r) for r in roots]
    expected = [sum(end[: len(p)] == p for end in ends) / len(roots) for p in paths]
    np.testing.assert_allclose(jit(node_reach)(tree, traces), [*expected, 0, 0], rtol=1e-6)
    deep = node_reach(public_tree("chain_8"), traces)  # no root is known down to depth 8
    assert np.all(np.isnan(deep))


def test_tables_by_plain_counting(toy, jit):
    _, _, traces = toy
    depth, ranks = 4, 3
    found = jit(lambda traces: acceptance_table(traces, depth=depth, ranks=ranks))(traces)
    rank, starts = np.asarray(traces.rank).tolist(), np.asarray(traces.num_starts)
    for d in range(depth):
        asked = [
            [r[d] for r in rank[t][:n] if r[d] != UNKNOWN and all(0 <= above < ranks for above in r[:d])]
            for t, n in enumerate(starts)
        ]
        m = np.array([len(seen) for seen in asked])
        assert found.asked[d] == m.sum()
        for r in range(ranks):
            y = np.array([seen.count(r) for seen in asked])
            p = y.sum() / m.sum()
            np.testing.assert_allclose(found.table[d, r], p, rtol=1e-6)
            # Linearized: Σ (y − p m)² / (T (T − 1) mean(m)²).
            error = np.sqrt(np.sum((y - p * m) ** 2) / (len(m) * (len(m) - 1)) / m.mean() ** 2)
            np.testing.assert_allclose(found.standard_error[d, r], error, rtol=1e-4)
    assert np.all(np.sum(found.table, axis=1) <= 1 + 1e-6)
    nobody = acceptance_table(RankTraces(jnp.full((2, 3, 2), 9), jnp.asarray([3, 1])), depth=2, ranks=2)
    assert nobody.asked.tolist() == [4, 0]
    assert nobody.table.tolist() == [[0, 0], [0, 0]]


def test_errors_of_ratios_against_many_samples():
    """Of 4000 samples of 40 texts: the scatter of the ratios is what each sample says of itself."""
    rng = np.random.default_rng(12)
    m = rng.integers(5, 40, (4000, 40))
    y = rng.binomial(m, rng.beta(4, 2, m.shape)) + m
    ratio = jax.jit(ratio_of_totals)(jnp.asarray(y), jnp.asarray(m))
    np.testing.assert_allclose(ratio.mean, y.sum(1) / m.sum(1), rtol=1e-6)
    np.testing.assert_allclose(np.mean(ratio.per_text, axis=1), ratio.mean, rtol=1e-5)
    np.testing.assert_allclose(np.std(ratio.mean), np.mean(ratio.standard_error), rtol=0.05)
    equal = ratio_of_totals(jnp.asarray([3, 8, 4]), jnp.asarray([2, 2, 2]))
    np.testing.assert_allclose(equal.per_text, [1.5, 4, 2], rtol=1e-6)
    np.testing.assert_allclose(equal.standard_error, np.std([1.5, 4, 2], ddof=1) / 3**0.5, rtol=1e-6)
    one = ratio_of_totals(jnp.asarray([3]), jnp.asarray([2]))
    assert float(one.mean) == 1.5
    assert np.isnan(one.standard_error)


def test_paired_differences_against_scipy(jit):
    rng = np.random.default_rng(3)
    cycles = np.full((4, 9), 10)
    common = rng.integers(5, 30, 9)
    a = common + rng.integers(2, 9, (4, 9))
    b = common + rng.integers(0, 6, (4, 9))
    a[3], b[3] = b[3], a[3].copy()  # and one that loses
    first, second = (ratio_of_totals(jnp.asarray(tokens), jnp.asarray(cycles)) for tokens in (a, b))
    found = jit(paired_difference)(first, second)
    expected = stats.ttest_rel(a / 10, b / 10, axis=1, alternative="greater")
    np.testing.assert_allclose(found.gain, np.mean(a - b, axis=1) / 10, rtol=1e-4)
    np.testing.assert_allclose(found.gain / found.standard_error, expected.statistic, rtol=1e-4)
    np.testing.assert_allclose(found.p_value, expected.pvalue, rtol=1e-3)
    whole = paired_difference(first, second, over_sizes=True)
    together = stats.ttest_rel(np.mean(a, 0) / 10, np.mean(b, 0) / 10, alternative="greater")
    np.testing.assert_allclose(whole.p_value, together.pvalue, rtol=1e-3)
    # Texts that differ in the same way: certain; the same ratio: no difference.
    assert paired_difference(first, first).p_value.tolist() == [0.5] * 4
    # Pairing removes what the texts have in common.
    assert np.all(found.standard_error < 0.5 * np.hypot(first.standard_error, second.standard_error))


def test_scores_from_traces_are_the_papers(toy):
    texts, drafts, traces = toy
    maximal = maximal_tree(15, depth=3)
    paths = paths_of(maximal, 15)
    counted = np.sum([decode(text, draft, paths, 25)[2] for text, draft in zip(texts, drafts)], axis=0)
    np.testing.assert_array_equal(prior_scores_from_traces(maximal, traces, num_tokens=25), counted)
    reach = node_reach(tree_from_parents(maximal.parent, rank=maximal.rank), traces)
    roots = int(np.sum(np.asarray(traces.num_starts) - 2))
    np.testing.assert_allclose(prior_scores_from_traces(maximal, traces) / roots, reach, rtol=1e-6)
    with pytest.raises(InputError, match="record more"):
        prior_scores_from_traces(maximal, traces, num_tokens=50)


def test_the_bootstrap_is_of_the_roots(toy):
    _, _, traces = toy
    tree, trials = public_tree("quaternary_20", size=24), 150_001
    reach = np.asarray(node_reach(tree, traces))
    depth = np.asarray(tree.depth)
    survival = np.array([reach[depth == d].sum() for d in range(1, 25)])
    found = simulate_traces(tree, traces, jax.random.key(5), num_trials=trials)
    error = np.sqrt(survival * (1 - survival) / trials)
    assert np.all(np.abs(np.asarray(found.survivors) / trials - survival) <= 4 * error + 1e-9)
    np.testing.assert_allclose(found.mean, 1 + np.sum(np.asarray(found.survivors)) / trials, rtol=1e-5)
    squares = survival @ (2 * np.arange(1, 25) - 1) - survival.sum() ** 2
    np.testing.assert_allclose(found.standard_error, np.sqrt(squares / trials), rtol=0.02)
    none = traces.replace(num_starts=jnp.zeros_like(traces.num_starts))
    assert np.isnan(simulate_traces(tree, none, jax.random.key(5), num_trials=trials).mean)


def test_many_trees_at_once(toy, jit):
    _, _, traces = toy
    trees = stack_trees([RAGGED, public_tree("quaternary_20"), tree_from_parents([ROOT, 0, 1])])
    count = lambda tree: cycles_along_text(tree, traces, num_tokens=25)
    batch, single = jit(jax.vmap(count))(trees), jit(count)
    for i, tree in enumerate(unstack_trees(trees)):
        alone = single(tree)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf, i=i: leaf[i], batch), alone)


jitted_paths = jax.jit(accepted_nodes)
jitted_cycles = jax.jit(lambda tree, traces, tokens: cycles_along_text(tree, traces, num_tokens=tokens))


@given(seed=st.integers(0, 5000), shape=st.sampled_from([(1, 1, 1), (3, 9, 4), (2, 6, 2)]), nodes=st.integers(1, 7))
def test_any_shape(seed, shape, nodes):
    texts, starts, depth = shape
    rng = np.random.default_rng(seed)
    rank = rng.integers(0, 3, (texts, starts, depth), np.int32)
    num_starts = rng.integers(0, starts + 1, texts)
    traces = RankTraces(jnp.asarray(rank), jnp.asarray(num_starts, jnp.int32))
    growth = greedy_growth(rng.uniform(size=(4, 3)), nodes)
    paths = set(paths_of(growth, nodes))
    tree = tree_from_parents(growth.parent, rank=growth.rank, size=7)
    path = jitted_paths(tree, traces.rank)
    assert path.depth.tolist() == [[len(walk(paths, r)) for r in text] for text in rank.tolist()]
    asked = int(rng.integers(0, starts + 1))
    found = jax.device_get(jitted_cycles(tree, traces, asked))
    for t in range(texts):
        at = cycles = 0
        known = True
        while at < min(asked, num_starts[t]):
            end = walk(paths, rank[t, at].tolist())
            known &= not (len(end) == depth and any(p[:-1] == end for p in paths))
            at, cycles = at + len(end) + 1, cycles + 1
        assert (found.cycles[t], found.generated[t]) == (cycles, at)
        assert bool(found.complete[t]) == (known and at >= asked)


@pytest.mark.wrong_arrays
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: accepted_nodes(RAGGED, jnp.zeros((2, 0), jnp.int32)), "last axis is depth"),
        (lambda t: accepted_nodes(stack_trees([RAGGED, RAGGED]), t.rank), "use vmap"),
        (lambda t: node_reach(RAGGED, t.replace(rank=t.rank[0])), "text, start, depth"),
        (lambda t: node_reach(RAGGED, t.replace(rank=t.rank.astype(float))), "whole"),
        (lambda t: cycles_along_text(RAGGED, t.replace(num_starts=t.num_starts[:2]), num_tokens=1), "num_starts"),
        (lambda t: acceptance_table(t, depth=6, ranks=2), "1 to 5"),
        (lambda t: acceptance_table(t, depth=2, ranks=0), "ranks from 1"),
        (lambda t: simulate_traces(RAGGED, t, jax.random.key(0), num_trials=0), "num_trials is 0"),
        (lambda t: ratio_of_totals(jnp.zeros(3), jnp.zeros(2)), "per text"),
        (
            lambda t: paired_difference(
                ratio_of_totals(jnp.ones(3), jnp.ones(3)), ratio_of_totals(jnp.ones(2), jnp.ones(2))
            ),
            "same texts",
        ),
    ],
)
def test_what_is_refused(toy, call, words):
    with pytest.raises(ValueError, match=words):
        call(toy[2])
