"""Samples of one prompt: those of `decode` where nothing is random, independent of each other and of their number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxspec.compress.kv import round_kv
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.scaling import sample_continuations
from jaxspec.speculate.engine import decode_autoregressively
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import GREEDY, SAMPLING, Decoding, token_distribution
from jaxspec.trees.public_trees import chain_tree

CONFIG = DecoderConfig(
    vocab_size=7, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)
PROMPT = np.array([3, 1, 4, 1, 5], np.int32)
WIDTH = 8


@pytest.fixture(scope="module")
def params(random_network):
    return random_network(CONFIG, 5, sharpness=2.0)


@pytest.fixture(scope="module")
def sample(params):
    def sample(samples, prompt=PROMPT, seed=2, num_tokens=5, **options):
        settings = {"seed": jax.random.key(seed), "num_tokens": num_tokens, "width": WIDTH} | options
        return sample_continuations(params, CONFIG, prompt, samples=samples, **settings)

    return sample


def test_a_network_without_numbers_is_refused(params):
    """Its samples would be one token again and again, and every accuracy 0."""
    broken = params | {"final_norm": jnp.full_like(params["final_norm"], jnp.nan)}
    settings = {"seed": jax.random.key(2), "num_tokens": 5, "width": WIDTH, "samples": 2}
    with pytest.raises(InputError, match=r"logits are no numbers \(NaN\) for 2 of 2 texts"):
        sample_continuations(broken, CONFIG, PROMPT, **settings)


def test_greedy_samples_are_what_decoding_gives(params, sample):
    found = sample(2, decoding=GREEDY)
    decoded = decode_autoregressively(
        params,
        None,
        Request(jnp.asarray(PROMPT)[None], jnp.zeros(1, jnp.int32), jax.random.key(0), 5),
        GREEDY,
        draft=None,
        config=CONFIG,
        limits=tree_limits(chain_tree(0, 1)),
    )
    wanted = np.asarray(decoded.tokens)[0, len(PROMPT) : len(PROMPT) + 5]
    assert found.tokens.tolist() == [wanted.tolist()] * 2


def test_a_sample_does_not_depend_on_how_many_are_asked_for(sample):
    many = sample(21)
    for count in (1, 8, 9):
        few = sample(count)
        for part, all_of_it in zip(few, many, strict=True):
            np.testing.assert_array_equal(part, all_of_it[:count])


@pytest.mark.network
def test_padding_of_the_prompt_is_not_seen(sample):
    # 64 tokens are no padding, 65 are 63 of it.
    long = np.tile(PROMPT, 13)
    whole, cut = sample(3, prompt=long[:64], decoding=GREEDY), sample(3, prompt=long[:63], decoding=GREEDY)
    assert long[63] == 1
    if cut.tokens[0, 0] == 1:
        np.testing.assert_array_equal(whole.tokens[0, :4], cut.tokens[0, 1:])
    again = sample(3, prompt=long[:65], decoding=GREEDY)
    if whole.tokens[0, 0] == long[64]:
        np.testing.assert_array_equal(again.tokens[0, :4], whole.tokens[0, 1:])
    assert whole.length.tolist() == cut.length.tolist() == again.length.tolist() == [5] * 3


@pytest.mark.network
def test_stop_tokens_end_a_sample_and_belong_to_it(sample):
    free, found = sample(40), sample(40, stop=np.array([2, 6]))
    for tokens, length, stopped, whole in zip(found.tokens, found.length, found.stopped, free.tokens, strict=True):
        ends = np.flatnonzero(np.isin(whole, [2, 6]))
        assert stopped == bool(ends.size)
        assert length == (ends[0] + 1 if ends.size else 5)
        assert tokens[:length].tolist() == whole[:length].tolist()
        assert not tokens[length:].any()
    assert 0 < found.stopped.sum() < 40


@pytest.mark.network
@pytest.mark.parametrize("decoding", [SAMPLING, Decoding(False, 0.7, top_k=4, top_p=0.9)])
def test_samples_have_the_networks_distribution(params, sample, decoding):
    pairs = sample(4000, num_tokens=2, decoding=decoding, width=500)
    text = np.concatenate([np.tile(PROMPT, (7, 1)), np.arange(7)[:, None]], axis=1).astype(np.int32)
    logits = forward_text(params, CONFIG, jnp.asarray(text), kv_codec=round_kv).logits[:, -2:]
    probability = np.asarray(token_distribution(logits, decoding), np.float64)
    joint = probability[0, 0][:, None] * probability[:, 1]
    counts = np.zeros((7, 7))
    np.add.at(counts, tuple(pairs.tokens.T), 1)
    assert not counts[joint == 0].any()
    likely = joint * 4000 >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(joint[likely], joint[~likely].sum()) * 4000
    observed, expected = observed[expected > 0], expected[expected > 0]
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4
    # The same test finds a distribution that is a little off.
    wrong = 0.85 * expected + 0.15 * expected.mean()
    assert stats.chisquare(observed, wrong * observed.sum() / wrong.sum()).pvalue < 1e-4
    chosen = probability[0, 0][pairs.tokens[:, 0]]
    np.testing.assert_allclose(np.exp(pairs.log_prob[:, 0]), chosen, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"num_tokens": 0}, "num_tokens is 0"),
        ({"width": 0}, "width is 0"),
        ({"prompt": np.array([7])}, r"prompt\[0, 0\] is 7"),
        ({"prompt": np.array([], np.int32)}, "prompt have shape"),
        ({"decoding": Decoding(False, 0.0)}, "temperature"),
    ],
)
def test_bad_arguments(sample, given, message):
    with pytest.raises(ValueError, match=message):
        sample(**({"samples": 2} | given))
