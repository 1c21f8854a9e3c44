"""Elastic drafts: the same text as without, pools that follow the routers, and cycles that are foretold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import elastic_pair, mixture

from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.decoder import forward_text
from jaxspec.speculate.acceptance import TargetText, all_starts, compare_cycles
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import ElasticDraft, ReadyDraft
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.engine import autoregressive_tree
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.hotness import text_pools
from jaxspec.speculate.measured_ranks import ContinuedTexts
from jaxspec.speculate.predicted_cycles import expected_cycles, predict_cycles, predict_trees
from jaxspec.speculate.proof import continuation_length, decode_chains, decode_prompts
from jaxspec.speculate.sampling import GREEDY
from jaxspec.trees import pad_tree, tree_from_paths

pytestmark = pytest.mark.network

CONFIG = mixture(17)
PROMPTS = np.random.default_rng(0).integers(17, size=(16, 7)).astype(np.int32)
TOKENS = 24
OPTIONS = {"num_tokens": TOKENS, "decoding": GREEDY, "seed": 0}
BUSH = pad_tree(tree_from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]), size=8)


@pytest.fixture(scope="module")
def pair():
    return elastic_pair(CONFIG, 1, slice_bits=4, expert_pool=0.3)


@pytest.fixture(scope="module")
def alone(pair):
    """The target's own texts, long enough to predict cycles along them."""
    target, draft = pair
    ready = ReadyDraft(ElasticDraft(CONFIG), draft)
    return decode_chains(
        target, CONFIG, ready, Prompts(PROMPTS, **OPTIONS | {"num_tokens": continuation_length(TOKENS)}), 0
    )


def expected(pair, alone, draft_length=5, **options):
    target, (draft, knobs) = pair
    texts = alone["tokens"][:, : PROMPTS.shape[1] + continuation_length(TOKENS)]
    prompts = Prompts(PROMPTS, **OPTIONS)
    return predict_cycles(target, draft, CONFIG, prompts, texts, knobs=knobs, draft_length=draft_length, **options)


def renewed(pair, alone, draft_length=5):
    """Cycles expected with pools of the target's choices, in one pass, as tuning takes them."""
    target, (draft, knobs) = pair
    texts, first = (
        jnp.asarray(alone["tokens"][:, : PROMPTS.shape[1] + continuation_length(TOKENS)]),
        PROMPTS.shape[1] - 1,
    )
    result = forward_text(target, CONFIG, texts[:, :-1], kv_codec=round_kv)
    pools = text_pools(result.extras.original, CONFIG, knobs, first=first)
    cache, options = compress_cache(result.cache, knobs), {"target": target, "block": 8, "decoding": GREEDY}
    survival = all_starts(draft, CONFIG, TargetText(texts, result.hidden[:, first:]), cache, pools=pools, **options)
    return expected_cycles(survival, draft_length, TOKENS)


@pytest.mark.parametrize("sharing", [1, 8])
def test_chains_put_out_the_targets_text(pair, alone, sharing):
    ready = ReadyDraft(ElasticDraft(CONFIG, sharing), pair[1])
    found = decode_chains(pair[0], CONFIG, ready, Prompts(PROMPTS, **OPTIONS), 5, room=continuation_length(TOKENS))
    end = PROMPTS.shape[1] + TOKENS
    np.testing.assert_array_equal(found["tokens"][:, :end], alone["tokens"][:, :end])
    assert 1.2 < found["generated"].sum() / found["cycles"].sum() < 5.5  # neither never nor always accepted
    told = expected(pair, alone, sharing=sharing)
    counts = (found["generated"], found["cycles"], told["generated"], told["cycles"])
    compared = compare_cycles(*(np.asarray(x, np.float64) for x in counts))
    assert abs(compared.gap_in_standard_errors) < 3
    # Followed along its text, the draft does the very same.
    np.testing.assert_array_equal(told["cycles"], found["cycles"])
    np.testing.assert_array_equal(told["generated"], found["generated"])
    np.testing.assert_array_equal(told["survival"], found["accepted_at"][:, :5])


@pytest.mark.parametrize("sharing", [1, 3])
def test_trees_put_out_the_targets_text(pair, sharing):
    ready, prompts = ReadyDraft(ElasticDraft(CONFIG, sharing), pair[1]), PROMPTS[:sharing]
    limits, end = tree_limits(BUSH), PROMPTS.shape[1] + TOKENS
    none, room = autoregressive_tree(limits), continuation_length(TOKENS)
    plain = decode_prompts(
        pair[0], CONFIG, ready, Prompts(prompts, **OPTIONS | {"num_tokens": room}), none, limits=limits
    )
    found = decode_prompts(pair[0], CONFIG, ready, Prompts(prompts, **OPTIONS), BUSH, limits=limits, room=room)
    np.testing.assert_array_equal(found["tokens"][:, :end], plain["tokens"][:, :end])
    assert np.all(found["cycles"] < TOKENS)
    texts = ContinuedTexts(plain["tokens"][:, : PROMPTS.shape[1] + room])
    told = predict_trees(pair[0], ready, CONFIG, Prompts(prompts, **OPTIONS), texts, BUSH, limits=limits)
    np.testing.assert_array_equal(told["cycles"], found["cycles"])
    np.testing.assert_array_equal(told["survival"], found["accepted_at"])


def test_pools_of_the_targets_choices_foretell_every_cycle(pair, alone):
    ready = ReadyDraft(ElasticDraft(CONFIG, from_target=True), pair[1])
    found = decode_chains(pair[0], CONFIG, ready, Prompts(PROMPTS, **OPTIONS), 5, room=continuation_length(TOKENS))
    told = jax.jit(renewed)(pair, alone)
    np.testing.assert_allclose(told.cycles, found["cycles"], atol=1e-4)
    np.testing.assert_allclose(told.generated, found["generated"], atol=1e-4)


def test_the_pool_is_what_the_routers_chose(pair):
    """By hand: counts of the prompt, then of drafted tokens, with what is older fading."""
    draft, params = ElasticDraft(CONFIG, retention=0.5), pair[1]
    memory = draft.empty(params, 1, 20, 6)
    assert memory.pool.sum(axis=-1).tolist() == [[4], [4]]  # 2 + 0.3 (9 - 2) = 4.1
    cache = jax.tree.map(lambda leaf: leaf[..., :2] if leaf.shape[-1] == 26 else leaf[..., :2, :], memory.cache)
    chosen = jnp.asarray([[[[7, 1], [0, 1]], [[7, 8], [2, 3]]]])  # batch, token, layer, chosen

    class Extras:
        original = chosen

    told = Committed(
        tokens=jnp.zeros((1, 2), jnp.int32),
        hidden=jnp.zeros((1, 2, 16)),
        cache=cache,
        start=jnp.asarray([0]),
        before=jnp.asarray([0]),
        valid=jnp.asarray([2]),
        extras=Extras(),
    )
    memory = draft.commit(params, memory, told)
    # Layer 0: 7 twice, 1 first and 8 last: 1.5, 0.5, 1. The fourth place goes to the lowest number among those never chosen.
    np.testing.assert_allclose(memory.hotness[0, 0], [0, 0.5, 0, 0, 0, 0, 0, 1.5, 1])
    assert np.flatnonzero(memory.pool[0, 0]).tolist() == [0, 1, 7, 8]
    assert np.flatnonzero(memory.pool[1, 0]).tolist() == [0, 1, 2, 3]
    # A draft step records original choices; padding counts for nothing.
    root = Root(jnp.asarray([3]), jnp.asarray([2]))
    _, memory = jax.jit(draft.open)(params, memory, root)
    assert memory.recorded.sum(axis=-1).tolist() == [[2], [2]]
    above = jnp.zeros((1, 3, 6), bool).at[0, :2, 0].set(True)
    level = Level(
        jnp.asarray([[4, 5, 6]]), jnp.asarray(1), jnp.ones((1, 3), jnp.int32), jnp.zeros((1, 3), jnp.int32), above
    )
    _, memory = jax.jit(draft.extend)(params, memory, root, level)
    assert memory.recorded.sum(axis=-1).tolist() == [[6], [6]]
    # The next commitment takes the records, not what the target chose, and forgets them.
    later = draft.commit(params, memory, told._replace(start=jnp.asarray([2])))
    np.testing.assert_allclose(later.hotness, 0.25 * memory.hotness + memory.recorded)
    assert not np.any(later.recorded)
    target = ElasticDraft(CONFIG, retention=0.5, from_target=True).commit(params, memory, told)
    np.testing.assert_allclose(
        target.hotness[0, 0], 0.25 * memory.hotness[0, 0] + jnp.asarray([0, 0.5, 0, 0, 0, 0, 0, 1.5, 1])
    )
