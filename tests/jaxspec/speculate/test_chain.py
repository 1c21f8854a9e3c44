import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_text import sampling

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.compress.weights import hard_draft, prepare
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.models.stored import as_computed
from jaxspec.speculate import loop
from jaxspec.speculate.acceptance import TargetText, all_starts
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.predicted_cycles import expected_cycles
from jaxspec.speculate.sampling import Decoding, Purpose, draw_keys
from jaxspec.trees import chain_tree

CONFIG = DecoderConfig(
    vocab_size=13, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)


PROMPT, TOKENS, WIDTH = 6, 14, 5


PROMPTS = np.random.default_rng(0).integers(13, size=(3, PROMPT)).astype(np.int32)


IDS = np.array([40, 7, 311], np.int32)


SEED = jax.random.key(5)


EXACT_KV = {"kv_prune": 0.0, "kv_cut_bits": 0.0}


STATIC = {"draft": SelfDraft(CONFIG), "config": CONFIG, "limits": chain_limits(WIDTH)}


GREEDILY = Decoding(greedy=True, temperature=jnp.float32(1.0))


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def drafts(target, random_network):
    """Drafts and how they read committed KV, from the target itself to one that has hardly anything of it."""
    norms = {name: jnp.ones((2, size)) for name, size in {"qkv": 18, "o": 18, "gate_up": 18, "down": 26}.items()}
    # One type for all drafts, so that decoding compiles once.
    prune = jax.jit(lambda knobs: as_computed(hard_draft(target, prepare(CASSANDRA1, target, norms), knobs)))

    def pruned(**knobs):
        knobs = uniform_knobs(CASSANDRA1, CONFIG, **knobs)
        return prune(knobs), knobs

    return {
        "itself": (target, uniform_knobs(CASSANDRA1, CONFIG, **EXACT_KV)),
        "random": (random_network(CONFIG, 99, sharpness=3.0), uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.5)),
        "pruned": pruned(weight_prune=0.3, weight_cut_bits=4.0, kv_prune=0.2, kv_cut_bits=3.0),
        "hardly any": pruned(weight_prune=0.95, weight_cut_bits=7.0, kv_prune=0.94, kv_cut_bits=7.0),
    }


@pytest.fixture(scope="module")
def decode_greedily(target, drafts):
    def run(name, draft_length, prompts=PROMPTS, ids=IDS, num_tokens=TOKENS, **static):
        params, request = SelfDraftParams(*drafts[name]), Request(prompts, ids, SEED, num_tokens)
        return decode(target, params, request, chain_tree(draft_length, WIDTH), GREEDILY, **STATIC, **static)

    return run


@pytest.fixture(scope="module")
def autoregressive(target):
    params = SelfDraftParams(target, uniform_knobs(CASSANDRA1, CONFIG))
    return decode_autoregressively(target, params, Request(PROMPTS, IDS, SEED, TOKENS), GREEDILY, **STATIC)


@pytest.fixture(scope="module")
def run_target(target):
    return jax.jit(lambda tokens: forward_text(target, CONFIG, tokens, kv_codec=round_kv).logits)


@pytest.mark.network
def test_autoregressive_decoding_takes_the_largest_logit(run_target, autoregressive):
    tokens = np.zeros((3, PROMPT + TOKENS), np.int32)
    tokens[:, :PROMPT] = PROMPTS
    margin = np.full(autoregressive.margin.shape, np.inf)
    for place in range(PROMPT, PROMPT + TOKENS):
        logits = np.asarray(run_target(tokens)[:, place - 1])
        tokens[:, place] = np.argmax(logits, axis=-1)
        margin[:, place] = np.ptp(np.sort(logits, axis=-1)[:, -2:], axis=-1)
    np.testing.assert_array_equal(autoregressive.tokens[:, : PROMPT + TOKENS], tokens)
    np.testing.assert_allclose(autoregressive.margin, margin, rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(autoregressive.cycles, TOKENS)
    np.testing.assert_array_equal(autoregressive.generated, TOKENS)
    assert len(np.unique(tokens[:, PROMPT:])) > 4  # no text of one token, which any draft might guess


@pytest.mark.parametrize("draft_length", range(WIDTH))
@pytest.mark.parametrize("name", ["itself", "random", "pruned", "hardly any"])
def test_greedy_output_is_autoregressive_for_any_draft(decode_greedily, autoregressive, name, draft_length):
    result = decode_greedily(name, draft_length)
    part = slice(0, PROMPT + TOKENS)
    np.testing.assert_array_equal(result.tokens[:, part], autoregressive.tokens[:, part])
    # Bookkeeping: each cycle yields its accepted tokens and one of the target's own; none goes on after the last token.
    generated, cycles, accepted_at = (np.asarray(x) for x in (result.generated, result.cycles, result.accepted_at))
    np.testing.assert_array_equal(generated, cycles + accepted_at.sum(axis=1))
    assert np.all((generated >= TOKENS) & (generated < TOKENS + draft_length + 1))
    assert np.all(np.diff(np.column_stack([cycles, accepted_at]), axis=1) <= 0)
    assert not np.any(accepted_at[:, draft_length:])
    np.testing.assert_array_equal(result.margin[:, part], autoregressive.margin[:, part])  # to the last bit


@pytest.mark.parametrize("draft_length", range(WIDTH))
def test_the_target_as_its_own_draft_is_always_accepted(decode_greedily, draft_length):
    result = decode_greedily("itself", draft_length)
    np.testing.assert_array_equal(result.cycles, -(-TOKENS // (draft_length + 1)))
    np.testing.assert_array_equal(result.generated, np.asarray(result.cycles) * (draft_length + 1))


@pytest.mark.network
def test_predicted_cycles_are_the_counted_ones(target, drafts, decode_greedily, run_target):
    # The text is the target's own, longer than what is decoded, so that every start has all of its depths.
    depth = WIDTH - 1
    tokens = np.zeros((3, PROMPT + TOKENS + depth), np.int32)
    tokens[:, :PROMPT] = PROMPTS
    for place in range(PROMPT, tokens.shape[1]):
        tokens[:, place] = np.argmax(run_target(tokens)[:, place - 1], axis=-1)

    @jax.jit
    def predict(draft_params, knobs):
        result = forward_text(target, CONFIG, tokens[:, :-1], kv_codec=round_kv)
        survival = all_starts(
            draft_params,
            CONFIG,
            TargetText(jnp.asarray(tokens), result.hidden[:, PROMPT - 1 :]),
            compress_cache(result.cache, knobs),
            target=target,
            block=depth,
            decoding=GREEDILY,
        )
        return [expected_cycles(survival, length, TOKENS) for length in range(1, depth + 1)]

    for name in drafts:
        for length, predicted in enumerate(predict(*drafts[name]), start=1):
            counted = decode_greedily(name, length)
            np.testing.assert_array_equal(predicted.cycles, counted.cycles)
            np.testing.assert_array_equal(predicted.survival, counted.accepted_at[:, :length])


def test_new_values_compile_nothing(monkeypatch, decode_greedily):
    decode_greedily("itself", 2)
    traces = []
    monkeypatch.setattr(loop, "empty_cache", lambda *_: traces.append(1))
    decode_greedily("random", 0)
    decode_greedily("hardly any", 4, prompts=(PROMPTS + 1) % 13, ids=IDS + 1)
    decode_greedily("pruned", 3, num_tokens=5, room=TOKENS)
    assert not traces


@pytest.fixture(scope="module")
def sample(target, drafts):
    params, knobs = drafts["pruned"]
    # As a hard draft comes: matrices in bfloat16, which these values are already.
    narrow = {name: x.values().astype(jnp.bfloat16) if len(x.shape) == 3 else x for name, x in params["layers"].items()}
    params = params | {"layers": narrow}
    run_jitted = jax.jit(
        lambda target, params, prompts, ids, seed, tree, decoding: decode(
            target, params, Request(prompts, ids, seed, TOKENS), tree, decoding, law="sampled", **STATIC
        )
    )

    def run(rows=(0, 1, 2), *, ids=IDS, seed=SEED, draft_length=3):
        rows, given = np.array(rows), SelfDraftParams(params, knobs)
        tree = chain_tree(draft_length, WIDTH)
        return run_jitted(target, given, PROMPTS[rows], ids[rows], seed, tree, sampling(1.3).for_program())

    return run


@pytest.mark.network
def test_sampled_results_do_not_depend_on_batching(sample):
    whole, part = sample(), sample((2, 1))
    for together, apart in zip(whole[:-1], part[:-1]):  # all but the margin, which is no whole number
        np.testing.assert_array_equal(together[np.array([2, 1])], apart)


@pytest.mark.network
def test_draws_depend_on_prompt_id_and_seed(sample):
    text = lambda result: np.asarray(result.tokens)[:, PROMPT : PROMPT + TOKENS].tolist()
    base = text(sample())
    assert text(sample()) == base
    other_ids, other_seed = text(sample(ids=IDS + 1)), text(sample(seed=jax.random.key(6)))
    assert all(a != b for a, b in zip(base, other_ids))
    assert all(a != b for a, b in zip(base, other_seed))


@pytest.mark.network
def test_each_kind_of_draw_has_its_own_purpose(monkeypatch, target):
    drawn = []
    spy = lambda *arguments: drawn.append(arguments[1]) or draw_keys(*arguments)
    monkeypatch.setattr(loop, "draw_keys", spy)
    monkeypatch.setattr("jaxspec.speculate.expansion.draw_keys", spy)
    run = lambda target, params, prompts, tree: decode(
        target,
        params,
        Request(prompts, IDS, SEED, TOKENS),
        tree,
        sampling(1.0),
        law="sampled",
        room=TOKENS + 1,
        **STATIC,
    )
    params = SelfDraftParams(target, uniform_knobs(CASSANDRA1, CONFIG))
    jax.eval_shape(run, target, params, PROMPTS, chain_tree(1, WIDTH))
    assert set(drawn) == {Purpose.DRAFT, Purpose.ACCEPT, Purpose.NEXT}
