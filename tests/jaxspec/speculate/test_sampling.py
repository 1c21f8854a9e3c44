"""Temperature, top-k and top-p: by hand, without new compilations, and as distributions of whole texts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_text import NEW, SMALL, all_texts, chi_square, decode_sampled, draft_knobs, prompts_and_ids

from jaxspec.compress.kv import round_kv
from jaxspec.models.decoder import forward_text
from jaxspec.speculate import expansion, loop
from jaxspec.speculate.drafts import SelfDraftParams
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.sampling import GREEDY, SAMPLING, Decoding, token_distribution
from jaxspec.trees import chain_tree

pytestmark = pytest.mark.network

LOGITS = jnp.log(jnp.array([0.1, 0.4, 0.2, 0.2, 0.1]))


def chances(logits=LOGITS, temperature=1.0, **filters):
    return np.asarray(token_distribution(logits, Decoding(False, temperature, **filters)))


def test_the_likeliest_tokens_stay_and_of_equals_the_first():
    np.testing.assert_allclose(chances(top_k=2), np.array([0, 4, 2, 0, 0]) / 6, rtol=1e-6)
    np.testing.assert_allclose(chances(top_k=4), np.array([1, 4, 2, 2, 0]) / 9, rtol=1e-6)
    np.testing.assert_array_equal(chances(top_k=1), [0, 1, 0, 0, 0])
    np.testing.assert_allclose(chances(top_k=9), [0.1, 0.4, 0.2, 0.2, 0.1], rtol=1e-6)


def test_top_p_keeps_the_token_that_crosses_the_mass():
    np.testing.assert_allclose(chances(top_p=0.41), np.array([0, 4, 2, 0, 0]) / 6, rtol=1e-6)
    # Quarters are exact: 1/2 is met by the first token, and by the first two of four equals.
    quarters = jnp.log(jnp.array([0.25, 0.5, 0.25]))
    np.testing.assert_array_equal(chances(quarters, top_p=0.5), [0, 1, 0])
    np.testing.assert_allclose(chances(jnp.zeros(4), top_p=0.5), [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(chances(top_p=1e-6), [0, 1, 0, 0, 0])
    # The mass of top-p is that of what top-k leaves: 4/6 >= 0.6.
    np.testing.assert_array_equal(chances(top_k=2, top_p=0.6), [0, 1, 0, 0, 0])


def test_filters_that_keep_all_tokens_change_no_bit():
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((7, 40)), jnp.float32)
    plain = token_distribution(logits, SAMPLING)
    np.testing.assert_array_equal(plain, jax.nn.softmax(logits, axis=-1))
    traces = []

    @jax.jit
    def run(top_k, top_p):
        traces.append(1)
        return token_distribution(logits, Decoding(False, 1.0, top_k, top_p))

    np.testing.assert_allclose(run(0, 1.0), plain, rtol=1e-6)
    assert np.sum(run(5, 1.0)[0] > 0) == 5
    assert np.sum(run(5, 0.3)[0] > 0) < 5
    assert len(traces) == 1
    filtering = [SAMPLING, SAMPLING.replace(top_k=3), SAMPLING.replace(top_p=0.9), GREEDY, GREEDY.replace(top_k=3)]
    assert [decoding.filters for decoding in filtering] == [False, True, True, False, False]
    assert SAMPLING.for_program().top_k is None


# --- Whole texts of a network, on a vocabulary so small that every text can be listed --------------------------------------

WIDTH, SAMPLES, TEMPERATURE = 3, 20_000, 1.1


@pytest.fixture(scope="module")
def logits(networks):
    """The target's, along every text."""
    texts = all_texts(NEW)
    run = jax.jit(lambda: forward_text(networks[0], SMALL, texts[:, :-1], kv_codec=round_kv, logits_from=2).logits)
    return texts[:, 3:], run()


def sampler(networks, room=NEW):
    """Another room compiles anew, and so sees what was broken since."""
    params, asked = SelfDraftParams(networks[1], draft_knobs()), (*prompts_and_ids(SAMPLES), jax.random.key(11))
    run = jax.jit(functools.partial(decode_sampled, room=room, limits=chain_limits(WIDTH)))
    return lambda decoding, length: run(networks[0], params, asked, chain_tree(length, WIDTH), decoding)


@pytest.fixture(scope="module")
def sample(networks):
    return sampler(networks)


def p_value(result, logits, decoding):
    """Chi-square of the texts; 0 where one came that cannot."""
    texts, logits = logits
    p = np.asarray(token_distribution(logits, decoding), np.float64)
    probability = np.prod(np.take_along_axis(p, texts[..., None], axis=-1)[..., 0], axis=1)
    return chi_square(result.tokens, probability, cells=4)


FILTERS = [{"top_k": 3}, {"top_p": 0.7}, {"top_k": 3, "top_p": 0.85}]


@pytest.mark.parametrize("filters", FILTERS)
def test_texts_have_the_filtered_targets_distribution(sample, logits, filters):
    decoding = Decoding(False, TEMPERATURE, **{"top_k": 0, "top_p": 1.0} | filters)
    result = sample(decoding, WIDTH - 1)
    assert p_value(result, logits, decoding) > 1e-4
    assert p_value(result, logits, SAMPLING.replace(temperature=TEMPERATURE)) < 1e-9
    assert 1.1 < np.mean(result.cycles) < 2.9  # neither always nor never accepted


@pytest.mark.parametrize("broken", ["the target is not filtered", "the law is the unfiltered draft's"])
def test_a_filter_on_one_side_is_noticed(monkeypatch, networks, logits, broken):
    decoding = Decoding(False, TEMPERATURE, top_p=0.8)
    unfiltered = SAMPLING.replace(temperature=TEMPERATURE)
    if broken.startswith("the target"):
        monkeypatch.setattr(loop, "token_distribution", lambda x, _: token_distribution(x, unfiltered))
    else:
        inner = expansion.propose

        def propose(x, *arguments, **options):
            return inner(x, *arguments, **options)._replace(distribution=token_distribution(x, unfiltered))

        monkeypatch.setattr("jaxspec.speculate.expansion.propose", propose)
    room = NEW + 1 + broken.startswith("the law")
    assert p_value(sampler(networks, room)(decoding, WIDTH - 1), logits, decoding) < 1e-6
