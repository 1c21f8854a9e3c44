"""Lookahead decoding: its windows, its pool, its price, and what it decodes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, DraftCost, Workload, catalog, chain_plan, price, uniform_footprint
from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import load_model
from jaxspec.models.kv_cache import take_slots
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import make_draft
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.drafts.lookahead_draft import LookaheadDraft
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.measured_ranks import ContinuedTexts
from jaxspec.speculate.predicted_cycles import predict_trees
from jaxspec.speculate.sampling import GREEDY
from jaxspec.testing import drafts as contract
from jaxspec.testing.drafts import TARGET
from jaxspec.text import load_text, windows
from jaxspec.trees import chain_tree, pad_tree, tree_from_paths

DRAFT = LookaheadDraft(TARGET, window=3, ngram=4)


def committed_of(text, start, valid):
    """Places of a text that a cycle has committed, with the target's keys and values."""
    result = forward_text(contract.network(), TARGET, jnp.asarray(text))
    places = jnp.broadcast_to(jnp.arange(start, start + valid)[None], (len(text), valid))
    return Committed(
        tokens=jnp.asarray(text[:, start + 1 : start + valid + 1]),
        hidden=result.hidden[:, start : start + valid],
        cache=take_slots(result.cache, places),
        start=jnp.full(len(text), start),
        before=jnp.asarray(text[:, start]),
        valid=jnp.full(len(text), valid),
    )


@pytest.fixture(scope="module")
def opened():
    """Two sequences with the root at place 7."""
    text = np.random.default_rng(5).integers(11, size=(2, 12)).astype(np.int32)
    memory = DRAFT.empty(contract.network(), 2, 24, 6)
    memory = DRAFT.commit(contract.network(), memory, committed_of(text, 0, 7))
    root = Root(jnp.asarray(text[:, 7]), jnp.full(2, 7))
    _, after = DRAFT.open(contract.network(), memory, root)
    return text, memory, after


def test_a_column_guesses_what_the_target_says_after_it(opened):
    text, before, after = opened
    window = np.asarray(before.window)
    assert set(window[0].ravel()) <= set(text[0, :8])  # the prompt's own tokens
    for sequence in range(2):
        for column in range(3):
            # The root, the first row up to the column, the rows below it: a text without branches.
            line = [*text[sequence, :8], *window[sequence, 0, : column + 1], *window[sequence, 1:, column]]
            logits = forward_text(contract.network(), TARGET, jnp.asarray([line])).logits[0, -1]
            made = np.asarray(after.made)[sequence, column]
            np.testing.assert_array_equal(made, [*window[sequence, :, column], np.argmax(logits)])


def test_rows_move_up_and_ngrams_come_into_the_pool(opened):
    text, before, after = opened
    later = DRAFT.commit(contract.network(), after, committed_of(text, 7, 2))
    np.testing.assert_array_equal(later.window[:, :-1], before.window[:, 1:])
    np.testing.assert_array_equal(later.window[:, -1], after.made[:, :, -1])
    np.testing.assert_array_equal(later.pool[:, :3], after.made)
    assert later.written.tolist() == [3, 3]
    # The pool has room for 24 windows here: the next one takes the place of the oldest.
    full = later._replace(written=jnp.full(2, 72), fresh=jnp.ones(2, bool))
    again = DRAFT.commit(contract.network(), full, committed_of(text, 9, 1))
    np.testing.assert_array_equal(again.pool[:, :3], after.made)


def test_votes_by_hand(opened):
    _, memory, _ = opened
    grams = np.array([[4, 1, 2, 3], [4, 1, 5, 6], [4, 1, 2, 7], [4, 9, 9, 9], [8, 1, 0, 0], [4, 10, 0, 0]])
    pool = np.zeros((2, 72, 4), np.int32)
    pool[:, :6] = grams
    memory = memory._replace(pool=jnp.asarray(pool), written=jnp.array([6, 5]))
    root = Root(jnp.array([4, 4]), jnp.full(2, 7))
    logits, memory = DRAFT.open(contract.network(), memory, root)
    # 1 follows 4 three times; of 9 and 10 the latest wins, if it is there: the second sequence has five n-grams.
    assert np.argsort(-np.asarray(logits), axis=1)[:, :2].tolist() == [[1, 10], [1, 9]]
    level = lambda first, tokens, parents, depth: Level(
        jnp.asarray([tokens] * 2),
        jnp.asarray(first),
        jnp.full((2, len(tokens)), depth),
        jnp.asarray([parents] * 2),
        jnp.zeros((2, len(tokens), 6), bool),
    )
    logits, memory = DRAFT.extend(contract.network(), memory, root, level(1, [1, 9], [0, 0], 1))
    assert np.argmax(logits, axis=2)[0].tolist() == [2, 9]
    logits, memory = DRAFT.extend(contract.network(), memory, root, level(3, [2], [1], 2))
    assert set(np.argsort(-np.asarray(logits)[0, 0])[:2].tolist()) == {3, 7}
    # An n-gram has ended: nothing is known.
    logits, _ = DRAFT.extend(contract.network(), memory, root, level(4, [7], [3], 3))
    assert np.ptp(np.asarray(logits)) == 0


def test_the_window_is_priced_in_the_verification():
    device, target = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
    load, bits = Workload(batch=8.0, context_tokens=1024.0), uniform_footprint(16.0)
    without_words = lambda draft: dataclasses.replace(draft, statement="")
    cycle = lambda draft, length: price(Case(device, target, load, bits, without_words(draft)), chain_plan(length))
    cost = DRAFT.cost(TARGET, target, "llama-3.1-8b")
    # Three columns of three rows: 9 tokens. A verification of 4 + 9 takes as long as one of 13 that sees as little.
    assert (cost.passes, cost.lookahead_tokens) == (0.0, 9.0)
    # Row r and column c see the root, c + 1 tokens of the first row, and r below.
    assert cost.lookahead_visible == np.mean([1 + (c + 1) + r for r in range(3) for c in range(3)])
    lookup, ahead, longer = (
        cycle(draft, length)
        for draft, length in ((DraftCost(passes=0.0), 3.0), (cost, 3.0), (DraftCost(passes=0.0), 12.0))
    )
    assert float(ahead.draft_s) == 0.0
    assert float(lookup.verify_s) < float(ahead.verify_s) == pytest.approx(float(longer.verify_s), rel=1e-3)
    assert ahead.energy_j is None or float(ahead.energy_j) > float(lookup.energy_j)
    # No tokens, no cost; and nothing drafted, nothing guessed.
    np.testing.assert_array_equal(cycle(DraftCost(passes=0.0, lookahead_visible=7.0), 3.0).verify_s, lookup.verify_s)
    np.testing.assert_array_equal(cycle(cost, 0.0).verify_s, cycle(DraftCost(passes=0.0), 0.0).verify_s)


TREES = {
    "chain": chain_tree(2, 6),
    "branches": pad_tree(tree_from_paths([(0,), (1,), (2,), (0, 0), (1, 0), (2, 0)]), size=6),
}


@pytest.mark.network
@pytest.mark.parametrize("name", TREES)
def test_embedded_text_and_cycles_are_as_predicted(name):
    """Greedy text is the target's own, and a replay counts the cycles that decoding takes, without decoding."""
    loaded, tokens, room = load_model("embedded"), 32, 40
    ready = make_draft("lookahead", loaded)
    ready = ready._replace(draft=LookaheadDraft(loaded.config, window=4, ngram=3))
    text = load_text("stdlib", loaded.tokenizer)
    prompts = windows(text.held_out, 2, 48, 0, document_starts=text.held_out_starts)
    tree = jax.tree.map(jnp.asarray, TREES[name])
    limits = tree_limits(TREES[name])
    static = {"draft": ready.draft, "config": loaded.config, "room": room, "limits": limits}
    asked = lambda count: (ready.params, ready.params, Request(prompts, jnp.arange(2), jax.random.key(0), count))
    plain = decode_autoregressively(*asked(room), GREEDY, **static)
    found = decode(*asked(tokens), tree, GREEDY, **static)
    np.testing.assert_array_equal(found.tokens[:, : 48 + tokens], plain.tokens[:, : 48 + tokens])
    expected = predict_trees(
        ready.params,
        ready,
        loaded.config,
        Prompts(
            np.asarray(plain.tokens)[:, : 48 + room][:, :48],
            num_tokens=tokens,
            decoding=GREEDY,
            seed=0,
            lengths=np.full(2, 48, np.int32),
        ),
        ContinuedTexts(np.asarray(plain.tokens)[:, : 48 + room]),
        tree,
        limits=limits,
    )
    np.testing.assert_array_equal(expected["cycles"], found.cycles)
    np.testing.assert_array_equal(expected["generated"], found.generated)
    assert np.sum(found.cycles) < np.sum(found.generated)  # some are accepted
