"""Sampled chains: texts have the target's distribution, cycles are the predicted ones."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chain_samples import sampling
from scipy import stats

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.speculate.acceptance import TargetText, all_starts, expected_cycles
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.engine import decode
from jaxspec.speculate.expansion import chain_limits
from jaxspec.trees import chain_tree

VOCAB, NEW, DRAFT_LENGTH, SAMPLES, TEMPERATURE = 4, 3, 2, 40_000, 0.8


SMALL = DecoderConfig(
    vocab_size=VOCAB, hidden_size=8, intermediate_size=10, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)


START = np.array([2, 0, 3], np.int32)


@pytest.fixture(scope="module")
def networks(random_network):
    return random_network(SMALL, 3, sharpness=0.7), random_network(SMALL, 4, sharpness=0.7)


@pytest.fixture(scope="module")
def small_knobs():
    return uniform_knobs(CASSANDRA1, SMALL, kv_prune=0.3, kv_cut_bits=5.0)


@pytest.fixture(scope="module")
def sample_many(jit, networks, small_knobs):
    target, draft = networks
    static = dict(draft=SelfDraft(SMALL), config=SMALL, num_tokens=NEW, limits=chain_limits(DRAFT_LENGTH + 1))
    run_jitted = jit(functools.partial(decode, law="sampled", **static))

    @functools.cache
    def run(draft_length):
        return run_jitted(
            target,
            SelfDraftParams(draft, small_knobs),
            np.broadcast_to(START, (SAMPLES, 3)),
            np.arange(SAMPLES, dtype=np.int32),
            chain_tree(draft_length, DRAFT_LENGTH + 1),
            jax.random.key(11),
            sampling(TEMPERATURE).for_program(),
        )

    return run


@pytest.fixture(scope="module")
def exact(jit, networks, small_knobs):
    """Probability of each text under the target, and its cycles and accepted tokens given that it comes out."""
    new = np.array(list(itertools.product(range(VOCAB), repeat=NEW + DRAFT_LENGTH)), np.int32)
    texts = np.concatenate([np.broadcast_to(START, (len(new), 3)), new], axis=1)

    @jit
    def run():
        result = forward_text(networks[0], SMALL, texts[:, :-1], kv_codec=round_kv, logits_from=len(START) - 1)
        survival = all_starts(
            networks[1],
            SMALL,
            TargetText(jnp.asarray(texts), result.logits),
            compress_cache(result.cache, small_knobs),
            block=DRAFT_LENGTH,
            decoding=sampling(TEMPERATURE),
        )
        return result.logits, expected_cycles(survival, DRAFT_LENGTH, NEW)

    logits, statistics = run()
    scaled = np.exp(np.asarray(logits, np.float64) / TEMPERATURE)
    p = np.take_along_axis(scaled / scaled.sum(axis=-1, keepdims=True), texts[:, 3:, None], axis=-1)[..., 0]
    return np.prod(p, axis=1), statistics


@pytest.mark.parametrize("draft_length", [0, DRAFT_LENGTH])
def test_sampled_texts_have_the_targets_distribution(sample_many, exact, draft_length):
    probability = exact[0].reshape(VOCAB**NEW, -1).sum(axis=1)
    new = np.asarray(sample_many(draft_length).tokens)[:, 3 : 3 + NEW]
    counts = np.bincount(np.ravel_multi_index(tuple(new.T), (VOCAB,) * NEW), minlength=VOCAB**NEW)
    expected = probability * SAMPLES
    rare = expected < 10  # in one cell
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    assert len(expected) > 30
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(expected) - 1) > 1e-4


def test_sampled_cycles_are_the_predicted_ones(sample_many, exact):
    probability, statistics = exact
    result = sample_many(DRAFT_LENGTH)
    counted = np.column_stack([result.cycles, result.accepted_at]).astype(np.float64)
    predicted = probability @ np.column_stack([statistics.cycles, statistics.survival])
    standard_error = counted.std(axis=0) / np.sqrt(SAMPLES)
    assert np.all(np.abs(counted.mean(axis=0) - predicted) < 3 * standard_error)
    assert 1.5 < predicted[0] < 2.5  # neither always nor never accepted
