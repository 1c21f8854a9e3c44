"""Prompts of unequal length and stop tokens: what is decoded, counted and predicted is what each prompt has alone."""

import jax
import numpy as np
import pytest

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.speculate import (
    GREEDY,
    ContinuedTexts,
    continuation_length,
    count_mismatches,
    decode_chains,
    decode_prompts,
    predict_cycles,
    record_ranks,
    tree_limits,
)
from jaxspec.speculate.chunks import Prompts, ends_of, generated_tokens, padded
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.proof import continue_texts
from jaxspec.trees import cycles_along_text, tree_from_paths

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=13, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
TOKENS, LENGTH = 14, 3
ROOM = continuation_length(TOKENS)
RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(13, size=size).astype(np.int32) for size in (6, 1, 11, 3, 11)]
PROMPTS, LENGTHS = padded(TEXTS)
PLACES = PROMPTS.shape[1]
OPTIONS = {"decoding": GREEDY, "seed": 0}
KNOBS = uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.2, kv_cut_bits=3.0)


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def draft(target, random_network):
    blend = jax.tree.map(lambda a, b: a + 0.05 * (b - a), target, random_network(CONFIG, 99, sharpness=3.0))
    return self_draft(CONFIG, blend, KNOBS)


@pytest.fixture(scope="module")
def chains(target, draft):
    """With and without a draft."""

    def run(length, stop=(), tokens=TOKENS):
        shared = OPTIONS | {"lengths": LENGTHS, "stop": [*stop, *[-1] * (2 - len(stop))]}
        return decode_chains(target, CONFIG, draft, Prompts(PROMPTS, num_tokens=tokens, **shared), length, room=ROOM)

    return run


@pytest.fixture(scope="module")
def plain(chains):
    return chains(0, tokens=ROOM)


@pytest.fixture(scope="module")
def stop(plain):
    """A token that some texts generate and others do not; another that few do."""
    texts = generated_tokens(plain["tokens"], LENGTHS, plain["generated"], TOKENS)
    shared = [token for token in range(13) if 0 < np.any(texts == token, axis=1).sum() < len(TEXTS)]
    return shared[0], shared[-1]


def test_each_prompt_is_decoded_as_it_is_alone(target, draft, chains, plain):
    together = chains(LENGTH)
    assert count_mismatches(together, plain, LENGTHS, TOKENS)["mismatches"] == 0
    assert count_mismatches(together, plain, LENGTHS, TOKENS)["tokens"] == TOKENS * len(TEXTS)
    for row in (0, 2):
        text = TEXTS[row][None]
        alone = decode_chains(target, CONFIG, draft, Prompts(text, num_tokens=TOKENS, **OPTIONS), LENGTH, room=ROOM)
        for name in ("generated", "cycles", "accepted_at"):
            np.testing.assert_array_equal(together[name][row], alone[name][0])
        written = len(TEXTS[row]) + TOKENS
        np.testing.assert_array_equal(together["tokens"][row, :written], alone["tokens"][0, :written])
    narrow = continue_texts(target, CONFIG, Prompts(TEXTS[2][None], num_tokens=TOKENS, **OPTIONS))
    np.testing.assert_array_equal(narrow["tokens"][0, : 11 + TOKENS], plain["tokens"][2, : 11 + TOKENS])


def test_stop_tokens_end_texts_and_nothing_behind_them_counts(chains, plain, stop):
    texts = generated_tokens(plain["tokens"], LENGTHS, plain["generated"], ROOM)
    ends = ends_of(texts, stop)
    for length in (0, LENGTH, 8):
        found = chains(length, stop)
        ours = generated_tokens(found["tokens"], LENGTHS, found["generated"], TOKENS)
        for row, text in enumerate(texts):
            upto = min(ends[row], TOKENS)
            np.testing.assert_array_equal(ours[row, :upto], text[:upto])
            np.testing.assert_array_equal(ours[row, upto:], -1)
            if ends[row] <= TOKENS:
                assert found["generated"][row] == ends[row]
                np.testing.assert_array_equal(found["tokens"][row, LENGTHS[row] + ends[row] :], 0)
        # A cycle yields what it accepts and one token more, but for the last of a text that a drafted token stops.
        short = found["cycles"] + found["accepted_at"].sum(axis=1) - found["generated"]
        assert set(short) <= {0, 1}
        np.testing.assert_array_equal(found["ended_at"].sum(axis=1), short)
        assert np.all(found["ended_at"] <= found["accepted_at"])
        np.testing.assert_array_equal(found["accepted_nodes"], found["accepted_at"])
    assert np.any(ends <= TOKENS)
    assert np.any(ends > TOKENS)
    assert np.any(chains(8, stop)["ended_at"])
    both = [chains(length, stop) for length in (LENGTH, 0)]
    compared = count_mismatches(*both, LENGTHS, TOKENS)
    assert compared["mismatches"] == 0
    assert compared["tokens"] == np.minimum(ends, TOKENS).sum()
    cut = both[0] | {"generated": both[0]["generated"] - 1}
    assert count_mismatches(cut, both[1], LENGTHS, TOKENS)["mismatches"] >= np.sum(ends <= TOKENS)


@pytest.mark.parametrize("stopping", [False, True])
def test_predicted_cycles_are_the_counted_ones(target, draft, chains, stop, stopping):
    stop = stop if stopping else ()
    texts = chains(0, stop, tokens=ROOM)["tokens"][:, : PLACES + ROOM]
    asked = Prompts(PROMPTS, num_tokens=TOKENS, **OPTIONS, lengths=LENGTHS, stop=stop)
    for length in (1, 5, 8):
        predicted = predict_cycles(
            target,
            draft.params.network,
            CONFIG,
            asked,
            texts,
            knobs=KNOBS,
            draft_length=length,
        )
        counted = chains(length, stop)
        np.testing.assert_array_equal(predicted["cycles"], counted["cycles"])
        np.testing.assert_array_equal(predicted["survival"], counted["accepted_at"][:, :length])
        np.testing.assert_array_equal(predicted["generated"], counted["generated"])


@pytest.mark.parametrize("stopping", [False, True])
def test_ranks_tell_every_cycle_of_a_tree(target, draft, chains, stop, stopping):
    stop = stop if stopping else ()
    tree = tree_from_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 0, 0)])
    plain = chains(0, stop, tokens=ROOM)
    generated = np.minimum(plain["generated"], ROOM)
    texts = ContinuedTexts(plain["tokens"][:, : PLACES + ROOM], LENGTHS, generated)
    traces = record_ranks(target, CONFIG, draft, texts, prompt_tokens=PLACES, depth=5)
    np.testing.assert_array_equal(traces.num_starts, generated)
    told = cycles_along_text(tree, traces, num_tokens=TOKENS)
    shared = OPTIONS | {"lengths": LENGTHS, "stop": [*stop, *[-1] * (2 - len(stop))]}
    counted = decode_prompts(
        target, CONFIG, draft, Prompts(PROMPTS, num_tokens=TOKENS, **shared), tree, limits=tree_limits(tree), room=ROOM
    )
    assert np.all(told.complete)
    np.testing.assert_array_equal(told.cycles, counted["cycles"])
    np.testing.assert_array_equal(told.generated, counted["generated"])
    np.testing.assert_array_equal(told.accepted, counted["accepted_nodes"])
    assert np.sum(counted["accepted_nodes"]) > 3


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([6, 1, 11, 3], r"lengths have shape \(4,\)"),
        ([0, 1, 11, 3, 11], "lengths reach from 0 to 11; prompts of 11 places allow 1 to 11"),
        ([6, 1, 12, 3, 11], "lengths reach from 1 to 12"),
        (np.ones(5), "type float64"),
    ],
)
def test_lengths_that_do_not_fit(target, draft, lengths, words):
    with pytest.raises(ValueError, match=words):
        decode_chains(
            target,
            CONFIG,
            draft,
            Prompts(PROMPTS, num_tokens=3, decoding=GREEDY, seed=0, lengths=np.asarray(lengths)),
            1,
        )
