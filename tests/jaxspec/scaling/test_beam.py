"""Beam search keeps what its scorer likes, and its branches are texts of the network."""

import itertools

import jax
import numpy as np
import pytest

from jaxspec.models import DecoderConfig
from jaxspec.scaling import BeamSearch, beam_search, sample_continuations
from jaxspec.speculate.sampling import GREEDY

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)
PROMPT = np.array([3, 1, 4], np.int32)
STEP_END = (0,)


@pytest.fixture(scope="module")
def params(random_network):
    return random_network(CONFIG, 5)


def searched(params, score, *, steps=4, **options):
    search = BeamSearch(beams=2, expansions=4, steps=steps, step_tokens=3, num_tokens=9, step_end=STEP_END)
    settings = {"seed": jax.random.key(1)} | options
    return beam_search(params, CONFIG, PROMPT, score, search, **settings)


def fives(texts):
    return np.array([np.sum(text == 5) for text in texts], float)


def scored(by_texts):
    return lambda samples: by_texts(samples.texts())


def test_beams_score_higher_than_samples(params):
    beams, scores, *_ = searched(params, scored(fives))
    samples = sample_continuations(params, CONFIG, PROMPT, samples=200, num_tokens=9, seed=jax.random.key(1))
    assert scores.tolist() == sorted(scores, reverse=True) == fives(beams.texts()).tolist()
    assert scores[0] > np.mean(fives(samples.texts())) + 2 * np.std(fives(samples.texts()))


def test_steps_end_at_their_token_or_after_so_many(params):
    seen = []
    collect = lambda texts: seen.append([text.copy() for text in texts]) or np.zeros(len(texts))
    found = searched(params, scored(collect))
    longest = 0
    for before, after in itertools.pairwise(seen):
        kept = {text.tobytes() for text in before}
        for text in after:
            begun = [length for length in range(len(text)) if text[:length].tobytes() in kept]
            assert begun
            step = text[max(begun) :]
            assert len(step) <= 3
            assert not np.any(step[:-1] == 0)
        longest += max(map(len, after)) - max(map(len, before))
    # All grow from kept branches, none of which grows by more than a step.
    assert found.steps == len(seen) == 4
    assert max(map(len, seen[0])) + longest <= found.passes <= 4 * 3
    assert found.passes <= found.tokens <= 8 * found.passes


def test_a_branch_may_be_done_without_a_token_that_says_so(params):
    done = lambda samples: np.array([5 in text for text in samples.texts()])
    beams, *_ = searched(params, scored(fives), done=done)
    assert beams.stopped.all()
    assert all(5 in text for text in beams.texts())
    everything = searched(params, scored(fives), done=lambda samples: np.ones(len(samples.tokens), bool))
    assert (everything.steps, everything.passes) == (1, max(everything.samples.length))


def test_the_greedy_search_is_one_text(params):
    beams, *_ = searched(params, scored(fives), decoding=GREEDY)
    wanted = sample_continuations(
        params, CONFIG, PROMPT, samples=1, num_tokens=9, seed=jax.random.key(0), decoding=GREEDY, width=8
    )
    for text in beams.texts():
        assert text.tolist() == wanted.tokens[0, : len(text)].tolist()
