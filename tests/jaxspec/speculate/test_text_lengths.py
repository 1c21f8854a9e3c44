"""Rotations that depend on a text's length: what is measured along a text is what decoding it token by token finds."""

import jax
import numpy as np
import pytest

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.rope import DynamicScaling
from jaxspec.speculate import (
    GREEDY,
    ContinuedTexts,
    continuation_length,
    count_mismatches,
    decode_chains,
    decode_prompts,
    measured_ranks,
    predict_cycles,
    record_ranks,
    tree_limits,
)
from jaxspec.speculate.chunks import Prompts, padded
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.measured_ranks import KeptTraces
from jaxspec.trees import cycles_along_text, tree_from_paths

pytestmark = pytest.mark.network

#: Trained on 7 positions: every prompt but one, and what follows all of them, goes beyond.
CONFIG = DecoderConfig(
    vocab_size=13,
    hidden_size=18,
    intermediate_size=26,
    num_layers=2,
    num_heads=3,
    num_kv_heads=1,
    head_dim=6,
    rope_theta=20.0,
    rope_scaling=DynamicScaling(3.0, 7),
)
TOKENS = 14
ROOM = continuation_length(TOKENS)
PROMPTS, LENGTHS = padded([np.random.default_rng(size).integers(13, size=size).astype(np.int32) for size in (9, 3, 12)])
KNOBS = uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.2, kv_cut_bits=3.0)
ASKED = Prompts(PROMPTS, num_tokens=TOKENS, decoding=GREEDY, seed=0, lengths=LENGTHS)


@pytest.fixture(scope="module")
def networks(random_network):
    """A target, and a network near it."""
    target, other = (random_network(CONFIG, seed, sharpness=3.0) for seed in (0, 99))
    return target, jax.tree.map(lambda a, b: a + 0.05 * (b - a), target, other)


@pytest.fixture(scope="module")
def text(networks):
    target, near = networks
    longer = ASKED._replace(num_tokens=ROOM)
    return decode_chains(target, CONFIG, self_draft(CONFIG, near, KNOBS), longer, 0, room=ROOM)


def test_predicted_cycles_are_the_counted_ones(networks, text):
    target, near = networks
    draft = self_draft(CONFIG, near, KNOBS)
    for length in (1, 5):
        texts, how = text["tokens"][:, : PROMPTS.shape[1] + ROOM], {"knobs": KNOBS, "draft_length": length}
        predicted = predict_cycles(target, draft.params.network, CONFIG, ASKED, texts, **how)
        counted = decode_chains(target, CONFIG, draft, ASKED, length, room=ROOM)
        assert count_mismatches(counted, text, LENGTHS, TOKENS)["mismatches"] == 0
        np.testing.assert_array_equal(predicted["cycles"], counted["cycles"])
        np.testing.assert_array_equal(predicted["survival"], counted["accepted_at"][:, :length])


@pytest.mark.parametrize("kind", ["self", "network"])
def test_ranks_tell_every_cycle_of_a_tree(networks, text, kind, monkeypatch):
    target, near = networks
    draft = self_draft(CONFIG, near, KNOBS) if kind == "self" else ReadyDraft(NetworkDraft(CONFIG), near)
    tree = tree_from_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 0, 0)])
    generated = np.minimum(text["generated"], ROOM)
    given = target, CONFIG, draft, ContinuedTexts(text["tokens"][:, : PROMPTS.shape[1] + ROOM], LENGTHS, generated)
    options = dict(prompt_tokens=PROMPTS.shape[1], depth=5)
    traces = record_ranks(*given, **options)
    # Of the roots that decoding can be at alone, with the target's pass of another draft.
    kept, passes = KeptTraces(), []
    monkeypatch.setattr(
        measured_ranks, "_traced", lambda *a, f=measured_ranks._traced, **b: passes.append(1) or f(*a, **b)
    )
    for _ in range(2):
        fewer = record_ranks(*given, **options, roots=TOKENS, kept=(kept, "target"))
        np.testing.assert_array_equal(fewer.rank, traces.rank[:, :TOKENS])
        np.testing.assert_array_equal(fewer.num_starts, np.minimum(traces.num_starts, TOKENS))
    assert len(passes) == 1
    told = cycles_along_text(tree, traces, num_tokens=TOKENS)
    counted = decode_prompts(target, CONFIG, draft, ASKED, tree, limits=tree_limits(tree), room=ROOM)
    np.testing.assert_array_equal(told.cycles, counted["cycles"])
    np.testing.assert_array_equal(told.accepted, counted["accepted_nodes"])
    assert np.sum(counted["accepted_nodes"]) > 3
