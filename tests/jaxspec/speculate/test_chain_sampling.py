"""Sampled chains: texts have the target's distribution, cycles are the predicted ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_text import (
    NEW,
    SMALL,
    START,
    VOCAB,
    all_texts,
    chi_square,
    decode_sampled,
    draft_knobs,
    prompts_and_ids,
    sampling,
)

from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.models.decoder import forward_text
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.drafts import SelfDraftParams
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.predicted_cycles import expected_cycles
from jaxspec.trees import chain_tree

pytestmark = pytest.mark.network

DRAFT_LENGTH, SAMPLES, TEMPERATURE = 2, 40_000, 0.8


@pytest.fixture(scope="module")
def small_knobs():
    return draft_knobs()


@pytest.fixture(scope="module")
def sample_many(networks, small_knobs):
    target, draft = networks
    run_jitted = jax.jit(functools.partial(decode_sampled, limits=chain_limits(DRAFT_LENGTH + 1)))

    @functools.cache
    def run(draft_length):
        return run_jitted(
            target,
            SelfDraftParams(draft, small_knobs),
            (*prompts_and_ids(SAMPLES), jax.random.key(11)),
            chain_tree(draft_length, DRAFT_LENGTH + 1),
            sampling(TEMPERATURE).for_program(),
        )

    return run


@pytest.fixture(scope="module")
def exact(networks, small_knobs):
    """Probability of each text under the target, and its cycles and accepted tokens given that it comes out."""
    texts = all_texts(NEW + DRAFT_LENGTH)

    @jax.jit
    def run():
        result = forward_text(networks[0], SMALL, texts[:, :-1], kv_codec=round_kv, logits_from=len(START) - 1)
        survival = all_starts(
            networks[1],
            SMALL,
            TargetText(jnp.asarray(texts), result.hidden[:, len(START) - 1 :]),
            compress_cache(result.cache, small_knobs),
            target=networks[0],
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
    assert chi_square(sample_many(draft_length).tokens, probability, cells=30) > 1e-4


def test_sampled_cycles_are_the_predicted_ones(sample_many, exact):
    probability, statistics = exact
    result = sample_many(DRAFT_LENGTH)
    counted = np.column_stack([result.cycles, result.accepted_at]).astype(np.float64)
    predicted = probability @ np.column_stack([statistics.cycles, statistics.survival])
    standard_error = counted.std(axis=0) / np.sqrt(SAMPLES)
    assert np.all(np.abs(counted.mean(axis=0) - predicted) < 3 * standard_error)
    assert 1.5 < predicted[0] < 2.5  # neither always nor never accepted
