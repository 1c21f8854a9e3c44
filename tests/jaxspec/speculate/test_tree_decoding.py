import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_samples import MOST_NODES, SHAPES, trees

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate import loop
from jaxspec.speculate.drafts import NGramDraft, NGramParams, SelfDraft, SelfDraftParams
from jaxspec.speculate.dynamic_tree import DynamicTree
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.expansion import TreeLimits, chain_limits, tree_limits
from jaxspec.speculate.loop import LoopForm, Request
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.sampling import Decoding, Purpose, draw_keys
from jaxspec.trees import (
    PADDING,
    chain_like_paths,
    chain_paths,
    chain_tree,
    pad_tree,
    parent_list,
    tree_from_parents,
    tree_from_paths,
)
from jaxspec.trees.rank_traces import cycles_along_text

CONFIG = DecoderConfig(
    vocab_size=67, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)

PROMPT, TOKENS = 6, 12
ROOM = 24  # the same for all, so that they share a compilation; ranks need some tokens more than are decoded
LIMITS = TreeLimits(nodes=MOST_NODES, depth=MOST_NODES, ranks=64, width=MOST_NODES)

PROMPTS = np.random.default_rng(0).integers(67, size=(3, PROMPT)).astype(np.int32)
IDS = np.array([40, 7, 311], np.int32)
SEED = jax.random.key(5)

GREEDILY = Decoding(greedy=True, temperature=np.float32(1.0)).for_program()
SAMPLED = Decoding(greedy=False, temperature=np.float32(1.0)).for_program()


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def drafts(target, random_network):
    """From the target itself, over one that is nearly it, to one that has nothing of it, and one without a network."""
    other = random_network(CONFIG, 99, sharpness=3.0)
    blend = jax.tree.map(lambda a, b: a + 0.3 * (b - a), target, other)
    network = SelfDraft(CONFIG)
    exact = uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.0, kv_cut_bits=0.0)
    return {
        "itself": (network, SelfDraftParams(target, exact)),
        "near": (network, SelfDraftParams(blend, uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.2, kv_cut_bits=3.0))),
        "random": (network, SelfDraftParams(other, uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.5))),
        "lookup": (NGramDraft(CONFIG.vocab_size, longest=3), NGramParams()),
    }


@pytest.fixture(scope="module")
def run(target, drafts):
    compiled = {}

    def of(
        name, tree, *, limits=LIMITS, num_tokens=TOKENS, room=ROOM, prompts=PROMPTS, ids=IDS, greedy=True, law="top"
    ):
        draft, params = drafts[name]
        dynamic = tree if isinstance(tree, DynamicTree) else None
        if dynamic is not None:
            tree, limits = None, dynamic.limits
        static = dict(draft=draft, config=CONFIG, room=room, limits=limits, law=law, dynamic=dynamic)
        if tuple(static.items()) not in compiled:
            compiled[tuple(static.items())] = jax.jit(
                functools.partial(loop.decoding_loop.__wrapped__, form=LoopForm(**static))
            )
        decode_quickly = compiled[tuple(static.items())]
        decoding = GREEDILY if greedy else SAMPLED
        return decode_quickly(target, params, Request(prompts, ids, SEED, jnp.asarray(num_tokens)), tree, decoding)

    return of


@pytest.fixture(scope="module")
def autoregressive(run):
    """Longer than what trees decode, for ranks beyond the last cycle."""
    result = run("itself", autoregressive_tree(LIMITS))
    return [np.asarray(part)[:, : PROMPT + TOKENS] for part in (result.tokens, result.margin)]


def padded(tree):
    return pad_tree(tree, size=LIMITS.nodes)


@pytest.mark.network
@pytest.mark.parametrize("name", ["itself", "near", "random", "lookup"])
@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_output_is_the_autoregressive_one(run, autoregressive, name, shape):
    tree = padded(tree_from_paths(SHAPES[shape]))
    result = run(name, tree)
    check(result, tree, autoregressive)


def same_text(result, autoregressive):
    np.testing.assert_array_equal(np.asarray(result.tokens)[:, : PROMPT + TOKENS], autoregressive[0])


def check(result, tree, autoregressive):
    same_text(result, autoregressive)
    # The same logits too, to the last bit: nothing that a tree does not change can decide otherwise.
    np.testing.assert_array_equal(np.asarray(result.margin)[:, : PROMPT + TOKENS], autoregressive[1])
    generated, cycles, accepted_at, accepted = (
        np.asarray(x) for x in (result.generated, result.cycles, result.accepted_at, result.accepted_nodes)
    )
    # Each cycle yields its accepted tokens and one of the target's own; none goes on after the last token.
    np.testing.assert_array_equal(generated, cycles + accepted_at.sum(axis=1))
    assert np.all((generated >= TOKENS) & (generated < TOKENS + LIMITS.depth + 1))
    # A node is accepted with its parent, and at most one at each depth.
    depth = np.asarray(tree.depth)
    for node, above in enumerate(parent_list(tree)):
        assert np.all(accepted[:, node] <= (accepted[:, above] if above >= 0 else cycles))
    np.testing.assert_array_equal(accepted[:, depth == PADDING], 0)
    for level in range(1, LIMITS.depth + 1):
        np.testing.assert_array_equal(accepted[:, depth == level].sum(axis=1), accepted_at[:, level - 1])


@pytest.mark.network
@settings(max_examples=25)
@given(tree=trees(), name=st.sampled_from(["itself", "near", "random", "lookup"]))
def test_greedy_output_is_the_autoregressive_one_for_any_tree(run, autoregressive, tree, name):
    check(run(name, tree), tree, autoregressive)


@pytest.mark.network
def test_a_chain_is_the_same_within_wider_limits(target, drafts, run):
    # With limits of its own, of one candidate and without any branch, nothing is gathered.
    draft, params = drafts["near"]
    static = dict(draft=draft, config=CONFIG, limits=chain_limits(5))
    chain = decode(target, params, Request(PROMPTS, IDS, SEED, TOKENS), chain_tree(4, 5), GREEDILY, **static)
    tree = run("near", padded(tree_from_paths(chain_paths(4))))
    np.testing.assert_array_equal(tree.cycles, chain.cycles)
    np.testing.assert_array_equal(tree.accepted_at[:, :4], chain.accepted_at)
    np.testing.assert_array_equal(chain.accepted_nodes, chain.accepted_at)
    np.testing.assert_array_equal(tree.tokens[:, : PROMPT + TOKENS], chain.tokens[:, : PROMPT + TOKENS])


@pytest.mark.network
@pytest.mark.parametrize("name", ["near", "lookup"])
def test_ranks_along_the_text_tell_every_cycle(run, target, drafts, name):
    draft, params = drafts[name]
    paths = [*chain_like_paths(20), (0, 3), (7,), (7, 0)]
    tree = tree_from_paths(paths)
    limits = tree_limits(tree)
    longer = TOKENS + limits.depth + 1
    texts = run(name, autoregressive_tree(LIMITS), num_tokens=longer).tokens[:, : PROMPT + longer]
    static = dict(draft=draft, config=CONFIG, prompt_tokens=PROMPT, depth=limits.depth)
    traces = jax.jit(functools.partial(measure_ranks, **static))(target, params, texts)
    predicted = cycles_along_text(tree, traces, num_tokens=TOKENS)
    counted = run(name, padded(tree))
    assert np.all(predicted.complete)
    np.testing.assert_array_equal(predicted.cycles, counted.cycles)
    np.testing.assert_array_equal(predicted.generated, counted.generated)
    np.testing.assert_array_equal(predicted.accepted, counted.accepted_nodes[:, : tree.size])
    assert np.sum(counted.accepted_nodes) > 3


GROWING = DynamicTree(nodes=10, depth=4, branches=3, frontier=2)


@pytest.mark.network
@pytest.mark.parametrize("name", ["itself", "near", "lookup"])
def test_dynamic_trees_decode_the_same_text(run, autoregressive, name):
    result = run(name, GROWING)
    same_text(result, autoregressive)
    np.testing.assert_array_equal(result.generated, result.cycles + np.sum(result.accepted_at, axis=1))
    if name == "itself":
        np.testing.assert_array_equal(result.cycles, -(-TOKENS // 5))  # the trunk of depth 4 is among the likeliest


@pytest.mark.network
@pytest.mark.parametrize(
    "dynamic",
    [
        DynamicTree(nodes=3, depth=1, branches=4, frontier=8),  # no level below the root
        DynamicTree(nodes=9, depth=3, branches=2, frontier=5),  # more nodes to expand than there are at first
        DynamicTree(nodes=1, depth=2, branches=1, frontier=1),
    ],
)
def test_dynamic_trees_of_odd_shapes(run, autoregressive, dynamic):
    result = run("lookup", dynamic)
    same_text(result, autoregressive)
    assert not np.any(np.asarray(result.accepted_at)[:, dynamic.depth :])


@pytest.mark.network
@pytest.mark.parametrize("law", ["top", "sampled"])
def test_sampled_results_do_not_depend_on_batching(run, law):
    tree = tree_from_paths(chain_like_paths(12))
    limits = tree_limits(tree)
    whole = run("near", tree, limits=limits, greedy=False, law=law)
    # Another place and other neighbours, at the same size: nothing is compiled anew.
    rows = np.array([2, 1, 1])
    part = run("near", tree, limits=limits, greedy=False, law=law, prompts=PROMPTS[rows], ids=IDS[rows])
    for together, apart in zip(whole[:-1], part[:-1]):
        np.testing.assert_array_equal(together[rows], apart)
    np.testing.assert_array_equal(whole.generated, whole.cycles + np.sum(whole.accepted_at, axis=1))


@pytest.mark.network
def test_each_kind_of_draw_has_its_own_purpose(monkeypatch, target, drafts):
    drawn = []
    spy = lambda *arguments: drawn.append(arguments[1]) or draw_keys(*arguments)
    monkeypatch.setattr(loop, "draw_keys", spy)
    monkeypatch.setattr("jaxspec.speculate.expansion.draw_keys", spy)
    draft, params = drafts["near"]
    tree = tree_from_paths([(0,), (1,), (0, 0), (1, 0)])  # two tokens are expanded together
    arguments = (target, params, Request(PROMPTS, IDS, SEED, jnp.asarray(3)), tree, SAMPLED)
    static = dict(draft=draft, config=CONFIG, room=3, law="sampled", limits=tree_limits(tree), dynamic=None)
    jax.eval_shape(functools.partial(loop.decoding_loop.__wrapped__, form=LoopForm(**static)), *arguments)
    assert set(drawn) == {Purpose.DRAFT, Purpose.ACCEPT, Purpose.NEXT, Purpose.BRANCH}


@pytest.mark.network
def test_errors_say_what_came(target, drafts):
    draft, params = drafts["lookup"]
    tree = tree_from_paths(chain_paths(2))
    call = lambda tree=tree, prompts=PROMPTS, decoding=GREEDILY, **options: decode(
        target, params, Request(prompts, IDS, SEED, 4), tree, decoding, **(dict(draft=draft, config=CONFIG) | options)
    )
    with pytest.raises(ValueError, match="4 tokens do not fit in room for 3"):
        call(room=3)
    with pytest.raises(ValueError, match="sampled candidates with greedy decoding"):
        call(law="sampled")
    with pytest.raises(ValueError, match="sampled candidates with a dynamic tree"):
        call(GROWING, law="sampled", decoding=SAMPLED)
    with pytest.raises(ValueError, match="came with a dynamic tree, which has its own"):
        call(GROWING, limits=LIMITS)
    with pytest.raises(ValueError, match="'best'; they are chosen as 'top' or 'sampled'"):
        call(law="best")
    with pytest.raises(ValueError, match=r"depth 2.*pad it or raise them"):
        call(limits=TreeLimits(2, 1, 1, 1))
    with pytest.raises(ValueError, match="prompts have shape"):
        call(prompts=PROMPTS[:, :0])
    with pytest.raises(ValueError, match="no draft came for a tree of 2 nodes"):
        call(draft=None)
    with pytest.raises(ValueError, match="68 candidates came"):
        call(tree_from_parents([-1], rank=[67]))
