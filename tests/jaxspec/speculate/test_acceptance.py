import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward, forward_text
from jaxspec.models.kv_cache import CachedKV, empty_cache, write_cache
from jaxspec.speculate.acceptance import TargetText, all_starts, block_pass
from jaxspec.speculate.predicted_cycles import expected_cycles
from jaxspec.speculate.sampling import Decoding

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
BATCH, QUERIES, FIRST = 2, 17, 3
MEASURED = QUERIES - FIRST


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def draft(target):
    """The target with noise in its matrices: near enough to be accepted now and then."""
    rng = np.random.default_rng(1)
    noisy = {
        name: value
        + (0.25 * value.shape[-1] ** -0.5 if value.ndim == 3 else 0) * rng.standard_normal(value.shape, np.float32)
        for name, value in target["layers"].items()
    }
    return target | {"layers": noisy}


@pytest.fixture(scope="module")
def run_target(target):
    """Logits and KV of whole texts."""
    return jax.jit(lambda tokens: forward_text(target, CONFIG, tokens, kv_codec=round_kv)[:3])


@pytest.fixture(scope="module")
def texts(run_target):
    """By greedy: random text, and text that the target itself put out after three random tokens."""
    tokens = np.random.default_rng(2).integers(11, size=(BATCH, QUERIES + 1)).astype(np.int32)
    own = tokens.copy()
    for place in range(FIRST, QUERIES):
        own[:, place + 1] = np.argmax(run_target(own[:, :-1])[0][:, place], axis=-1)
    result = {}
    for greedy, chosen in ((False, tokens), (True, own)):
        _, cache, hidden = run_target(chosen[:, :-1])
        knobs = uniform_knobs(CASSANDRA1, CONFIG, kv_prune=0.3, kv_cut_bits=3.0)
        result[greedy] = TargetText(jnp.asarray(chosen), hidden[:, FIRST:]), compress_cache(cache, knobs)
    return result


@pytest.fixture(scope="module")
def unrolled(draft, texts):
    """Logits of the draft, token by token as a cycle drafts them: greedy -> "batch start depth vocab"."""

    @jax.jit
    def step(tokens, slot, cache):
        result = forward(
            draft,
            CONFIG,
            tokens,
            StepInput(
                jnp.full((BATCH, 1), slot),
                jnp.ones((BATCH, 1, 1), bool),
                sources=[
                    CachedKV(cache, jnp.broadcast_to(jnp.arange(cache.num_slots) < slot, (BATCH, 1, cache.num_slots)))
                ],
            ),
        )
        return result.logits[:, 0], write_cache(cache, result.cache, jnp.full(BATCH, slot))

    def unroll(text, committed, depth):
        logits = np.full((BATCH, MEASURED, depth, CONFIG.vocab_size), np.nan, np.float32)
        for start in range(MEASURED):
            # Slots below the root hold the target's KV; what is drafted overwrites the others one by one.
            cache = write_cache(empty_cache(CONFIG, BATCH, QUERIES), committed, jnp.zeros(BATCH, jnp.int32))
            for i in range(min(depth, MEASURED - start)):
                slot = FIRST + start + i
                logits[:, start, i], cache = step(text.tokens[:, slot : slot + 1], jnp.asarray(slot), cache)
        return logits

    return {greedy: unroll(*texts[greedy], 4) for greedy in texts}


def log_softmax(logits):
    shifted = np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def distribution(logits, temperature, greedy):
    if greedy:
        return np.eye(logits.shape[-1])[np.argmax(logits, axis=-1)]
    return np.exp(log_softmax(np.asarray(logits, np.float64) / temperature))


def measured_slowly(text, target_logits, draft_logits, depth, temperature, greedy):
    """All of a block pass at every start, by loops in 64 bits."""
    names = ("survival", "survival_on_text", "overlap", "kl", "cross_entropy")
    result = {name: np.full((BATCH, MEASURED, depth), np.nan) for name in names}
    for b, start in itertools.product(range(BATCH), range(MEASURED - depth + 1)):
        passed = 1.0
        for d in range(depth):
            p = distribution(target_logits[b, start + d], temperature, greedy)
            q = distribution(draft_logits[b, start, d], temperature, greedy)
            token = int(text.tokens[b, FIRST + start + d + 1])
            result["overlap"][b, start, d] = np.minimum(p, q).sum()
            result["survival"][b, start, d] = passed * result["overlap"][b, start, d]
            passed *= min(1.0, q[token] / p[token]) if p[token] > 0 else 0.0
            result["survival_on_text"][b, start, d] = passed
            log_p, log_q = log_softmax(target_logits[b, start + d]), log_softmax(draft_logits[b, start, d])
            result["kl"][b, start, d] = np.sum(np.exp(log_p) * (log_p - log_q))
            result["cross_entropy"][b, start, d] = -log_q[token]
    return result


@pytest.mark.parametrize(("greedy", "temperature"), [(False, 0.7), (True, 1.0)])
@pytest.mark.parametrize("block", [1, 3, 4])
def test_a_block_pass_is_the_draft_unrolled_token_by_token(
    target, draft, texts, run_target, unrolled, block, greedy, temperature
):
    text, cache = texts[greedy]
    target_logits = run_target(text.tokens[:, :-1])[0][:, FIRST:]
    measure = jax.jit(partial(block_pass, config=CONFIG, block=block))
    decoding = Decoding(greedy, temperature).for_program()
    slow = measured_slowly(text, target_logits, unrolled[greedy], block, temperature, greedy)
    starts = MEASURED // block - (block > 1)
    for offset in range(block):
        fast = measure(
            draft, text=text, draft_cache=cache, target=target, offset=jnp.asarray(offset), decoding=decoding
        )
        roots = offset + block * np.arange(starts)
        for name, values in fast._asdict().items():
            assert values.shape == (BATCH, starts, block)
            np.testing.assert_allclose(values, slow[name][:, roots], rtol=1e-3, atol=1e-5, err_msg=name)
    survival = slow["survival"][~np.isnan(slow["survival"])]
    assert survival.min() < 0.5 < 0.8 < survival.max()


@pytest.mark.parametrize("greedy", [False, True])
def test_all_starts_stand_in_the_order_of_the_text(target, draft, texts, run_target, unrolled, greedy):
    text, cache = texts[greedy]
    target_logits = run_target(text.tokens[:, :-1])[0][:, FIRST:]
    block = 3
    measure = jax.jit(partial(all_starts, config=CONFIG, block=block))
    survival = measure(draft, text=text, draft_cache=cache, target=target, decoding=Decoding(greedy, 0.9).for_program())
    slow = measured_slowly(text, target_logits, unrolled[greedy], block, 0.9, greedy)["survival_on_text"]
    valid = MEASURED - block + 1
    np.testing.assert_allclose(survival[:, :valid], slow[:, :valid], rtol=1e-3, atol=1e-5)
    assert survival.shape[1] >= MEASURED
    assert np.all((np.asarray(survival) >= 0) & (np.asarray(survival) <= 1))


# --- Renewal of cycles -------------------------------------------------------------------------------------------------


def test_expected_cycles_by_hand():
    # Certain outcomes, drafts of 2, 5 tokens: from 0 two are accepted (next start 3), there none (4), there one (6: done).
    accepted = {0: 2, 3: 0, 4: 1}
    survival = np.full((1, 6, 3), 0.123)
    for start, count in accepted.items():
        survival[0, start, :2] = np.arange(2) < count
    result = expected_cycles(jnp.asarray(survival, jnp.float32), 2, 5)
    np.testing.assert_array_equal(result.cycles, [3])
    np.testing.assert_array_equal(result.survival, [[2, 1]])
    # Half the time one of one is accepted: 1 + P(second cycle) + P(third): starts 0, 1 (1/2), 2 (1/2 + 1/4).
    half = expected_cycles(jnp.full((1, 3, 1), 0.5), 1, 3)
    np.testing.assert_allclose(half.cycles, [2.25])
    np.testing.assert_allclose(half.survival, [[1.125]])


def every_path(survival, draft_length, num_tokens, start=0):
    """(probability, starts) of every way through the text."""
    if start >= num_tokens:
        yield 1.0, []
        return
    at_least = [1.0, *survival[start, :draft_length], 0.0]
    for count in range(draft_length + 1):
        for probability, starts in every_path(survival, draft_length, num_tokens, start + count + 1):
            yield (at_least[count] - at_least[count + 1]) * probability, [start, *starts]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("draft_length", "num_tokens"), [(1, 7), (2, 6), (3, 6), (3, 2)])
def test_expected_cycles_by_following_every_path(draft_length, num_tokens):
    survival = np.sort(np.random.default_rng(draft_length).random((3, 9, 3)), axis=-1)[..., ::-1]
    result = expected_cycles(jnp.asarray(survival), draft_length, num_tokens)
    for b in range(3):
        paths = list(every_path(survival[b], draft_length, num_tokens))
        np.testing.assert_allclose(sum(p for p, _ in paths), 1)
        np.testing.assert_allclose(result.cycles[b], sum(p * len(starts) for p, starts in paths))
        accepted = sum(p * survival[b, starts, :draft_length].sum(axis=0) for p, starts in paths)
        np.testing.assert_allclose(result.survival[b], accepted)
