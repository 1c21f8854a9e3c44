"""Arguments outside their documented ranges: each public function that decodes or measures says so in one line, on the host."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import checks
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import empty_cache
from jaxspec.speculate import engine
from jaxspec.speculate.acceptance import TargetText, all_starts, block_pass
from jaxspec.speculate.drafts import HeadDraft, NetworkDraft, NGramDraft, NGramParams, SelfDraft, self_draft
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.expected_cycles import expected_cycles
from jaxspec.speculate.growing_tree import GrowingTree
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.proof import decode_chains, predict_cycles
from jaxspec.speculate.sampling import Decoding, token_distribution
from jaxspec.trees import chain_paths, chain_tree, tree_from_paths
from jaxspec.tune.calibration import calibrate

# Wrong arrays are what these tests are about.
pytestmark = pytest.mark.wrong_arrays


CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=6, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=6
)
WIDTH, BATCH, PROMPT = 4, 2, 5
PROMPTS = np.arange(BATCH * PROMPT, dtype=np.int32).reshape(BATCH, PROMPT) % 11
SEED = jax.random.key(3)
KNOBS = uniform_knobs(CASSANDRA1, CONFIG)
DRAFT, VOTES = NGramDraft(CONFIG.vocab_size), NGramParams()


#: Settings of decoding, out of what a call is given.
SETTINGS = ("greedy", "temperature", "top_k", "top_p")


def settings_of(given):
    return Decoding(**(dict(greedy=False, temperature=0.7) | {name: given[name] for name in SETTINGS if name in given}))


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0)


def chain_call(target, *, prompts=PROMPTS, ids=(0, 1), length=2, seed=SEED, width=WIDTH, **settings):
    tree, (draft, params) = chain_tree(length, width), self_draft(CONFIG, target, KNOBS)
    static = dict(draft=draft, config=CONFIG, num_tokens=3, limits=chain_limits(width))
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    return decode(target, params, prompts, np.asarray(ids), tree, seed, settings_of(settings), **static)


def autoregressive_call(target, *, prompts=PROMPTS, ids=(0, 1), seed=SEED, **settings):
    draft, params = self_draft(CONFIG, target, KNOBS)
    static = dict(draft=draft, config=CONFIG, num_tokens=3, limits=chain_limits(WIDTH))
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    return decode_autoregressively(target, params, prompts, np.asarray(ids), seed, settings_of(settings), **static)


def tree_call(target, *, tree=None, prompts=PROMPTS, ids=(0, 1), seed=SEED, **settings):
    static = dict(draft=DRAFT, config=CONFIG, num_tokens=3)
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    tree = tree_from_paths(chain_paths(2)) if tree is None else tree
    return decode(target, VOTES, prompts, np.asarray(ids), tree, seed, settings_of(settings), **static)


growing_call = functools.partial(tree_call, tree=GrowingTree(2, depth=2, branches=2, frontier=1))


def proof_call(target, *, prompts=PROMPTS, length=2, **settings):
    draft = self_draft(CONFIG, target, KNOBS)
    return decode_chains(target, CONFIG, draft, prompts, length, num_tokens=3, decoding=settings_of(settings), seed=1)


def ranks_call(target, *, prompts=PROMPTS, **static):
    static = dict(draft=DRAFT, config=CONFIG, prompt_tokens=2, depth=2) | static
    return measure_ranks(target, VOTES, prompts, **static)


def calibration_call(target, *, prompts=PROMPTS, first=1, config=CONFIG):
    return calibrate(target, config, prompts, scheme=CASSANDRA1, first=first)


def prediction_call(target, *, prompts=PROMPTS, length=2, num_tokens=2, **settings):
    static = dict(prompt_tokens=2, num_tokens=num_tokens, knobs=KNOBS, decoding=settings_of(settings))
    return predict_cycles(target, target, CONFIG, prompts, draft_length=length, **static)


def block_call(target, *, prompts=PROMPTS, hidden=None, offset=0, block=2, **settings):
    hidden = np.zeros((len(prompts), 3, 6), np.float32) if hidden is None else hidden
    text, cache = TargetText(prompts, hidden), empty_cache(CONFIG, BATCH, PROMPT - 1)
    options = dict(offset=offset, block=block, decoding=settings_of(settings))
    return block_pass(target, CONFIG, text, cache, target=target, **options)


def starts_call(target, *, prompts=PROMPTS, hidden=None, block=2, **settings):
    hidden = np.zeros((len(prompts), 3, 6), np.float32) if hidden is None else hidden
    text, cache = TargetText(prompts, hidden), empty_cache(CONFIG, BATCH, PROMPT - 1)
    return all_starts(target, CONFIG, text, cache, target=target, block=block, decoding=settings_of(settings))


def changed(row, place, token, dtype=np.int32):
    prompts = PROMPTS.astype(dtype)
    prompts[row, place] = token
    return prompts


READERS = {
    "decode": tree_call,
    "decode, a chain": chain_call,
    "decode, growing": growing_call,
    "decode_autoregressively": autoregressive_call,
    "decode_chains": proof_call,
    "predict_cycles": prediction_call,
    "measure_ranks": ranks_call,
    "calibrate": calibration_call,
    "block_pass": block_call,
    "all_starts": starts_call,
}
SAMPLERS = {name: call for name, call in READERS.items() if name not in ("measure_ranks", "calibrate")}
DECODERS = {name: call for name, call in READERS.items() if name.startswith("decode") and name != "decode_chains"}
BAD_TOKENS = {
    "beyond the vocabulary": (changed(1, 2, 11), r"\[1, 2\] is 11; a vocabulary of 11 has token ids 0 to 10"),
    "far beyond": (changed(0, 4, 2**31 + 3, np.int64), r"\[0, 4\] is 2147483651"),
    "negative": (changed(1, 0, -1), r"\[1, 0\] is -1; a vocabulary of 11"),
    "on a device": (jnp.asarray(changed(1, 0, -7)), r"\[1, 0\] is -7"),
    "floating-point": (PROMPTS.astype(np.float32), "type float32; token ids are whole numbers"),
    "truth values": (PROMPTS > 3, "type bool; token ids are whole numbers"),
    "one text alone": (PROMPTS[0], r"shape \(5,\); give a batch of one or more texts"),
    "no text": (PROMPTS[:0], r"shape \(0, 5\); give a batch of one or more texts"),
    "empty texts": (PROMPTS[:, :0], r"shape \(2, 0\); give a batch of one or more texts"),
    "a list": (PROMPTS.tolist(), r"give an array"),
}
BAD_TEMPERATURES = {
    "zero": (0.0, r"temperature is 0\.0; sampling needs a finite number of at least 1e-30: .* greedy=True"),
    "negative": (np.float32(-0.5), r"temperature is -0\.5"),
    "not a number": (jnp.float32(jnp.nan), "temperature is nan"),
    "infinite": (np.inf, "temperature is inf"),
    "too small to divide by": (1e-42, "temperature is 1e-42"),
    "several": (np.ones(2, np.float32), r"temperature has shape \(2,\)"),
}


def refused(call, message, *arguments, **options):
    with pytest.raises(ValueError, match=message) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", BAD_TOKENS)
@pytest.mark.parametrize("name", READERS)
def test_tokens_must_be_those_of_the_vocabulary(target, name, kind):
    tokens, message = BAD_TOKENS[kind]
    refused(READERS[name], message, target, prompts=tokens)


@pytest.mark.parametrize("kind", BAD_TEMPERATURES)
@pytest.mark.parametrize("name", SAMPLERS)
def test_sampling_needs_a_temperature(target, name, kind):
    temperature, message = BAD_TEMPERATURES[kind]
    refused(SAMPLERS[name], message, target, temperature=temperature)


BAD_FILTERS = {
    "negative": ({"top_k": -1}, "top_k is -1; it must be one whole number of at least 0"),
    "no whole number": ({"top_k": 2.0}, r"top_k is 2\.0"),
    "several": ({"top_k": np.ones(2, int)}, "top_k is array"),
    "nothing left": ({"top_p": 0.0}, r"top_p is 0\.0; it must be one number above 0 and at most 1"),
    "more than all": ({"top_p": 1.5}, r"top_p is 1\.5"),
    "not a number": ({"top_p": np.nan}, "top_p is nan"),
    "a vector": ({"top_p": np.full(2, 0.5)}, "top_p is array"),
}


@pytest.mark.parametrize("kind", BAD_FILTERS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_filters_leave_something(target, name, kind):
    settings, message = BAD_FILTERS[kind]
    refused(SAMPLERS[name], message, target, **settings)


def test_rules_check_their_numbers_too():
    logits = np.zeros((3, 11), np.float32)
    for temperature, message in BAD_TEMPERATURES.values():
        refused(token_distribution, message, logits, Decoding(False, temperature))
    for settings, message in BAD_FILTERS.values():
        refused(token_distribution, message, logits, Decoding(False, 1.0, **settings))
    for length in (-1, 3, np.int32(7)):
        refused(chain_tree, "draft_length is .* from 0 to 2", length, 3)


@pytest.mark.parametrize(
    "length", [WIDTH, -1, WIDTH + 96, np.int32(WIDTH), jnp.asarray(WIDTH), 1.0, True, np.ones(2, int)]
)
def test_a_draft_has_less_tokens_than_the_window(target, length):
    refused(chain_call, "draft_length .* from 0 to 3", target, length=length)
    refused(chain_call, "draft_length .* from 0 to 3", target, length=length, greedy=True)


@pytest.mark.parametrize("name", DECODERS)
def test_sizes_are_whole_numbers_of_one_or_more(target, name):
    call = DECODERS[name]
    for value in (0, -3, 2.0, "4", True, None):
        refused(call, "num_tokens is .*; it must be a whole number of at least 1", target, num_tokens=value, room=9)
        if value is not None:
            refused(call, "room is .*; it must be a whole number of at least 1", target, room=value)
    refused(call, "3 tokens do not fit in room for 2", target, room=2)


def test_a_window_has_a_root(target):
    for width in (0, -1, 2.5):
        refused(chain_call, "width is", target, width=width)


@pytest.mark.parametrize("name", DECODERS)
def test_each_prompt_has_one_id_and_decoding_one_key(target, name):
    call = DECODERS[name]
    refused(call, r"prompt_ids have shape \(3,\) .*; 2 prompts need as many", target, ids=(0, 1, 2))
    refused(call, r"prompt_ids have shape \(1, 2\)", target, ids=((0, 1),))
    refused(call, "prompt_ids have .* type float64", target, ids=(0.0, 1.0))
    refused(call, "must fit in 32 bits", target, ids=(0, 2**33))
    for seed in (7, jax.random.key_data(SEED), jax.random.split(SEED), None):
        refused(call, r"seed is .*jax\.random\.key", target, seed=seed)
    refused(call, "greedy is 1; it must be True or False", target, greedy=1)


@pytest.mark.parametrize("name", [*DECODERS, "calibrate", "measure_ranks"])
def test_parameters_belong_to_the_configuration(target, name):
    larger = DecoderConfig(12, 6, 8, 1, 1, 1, 6)
    refused(READERS[name], r"embedding has shape \(11, 6\); the configuration needs \(12, 6\)", target, config=larger)


def test_a_draft_has_the_targets_vocabulary(target):
    other = DecoderConfig(13, 6, 8, 1, 1, 1, 6)
    for draft in (NGramDraft(13), NetworkDraft(other), SelfDraft(other), HeadDraft(other)):
        for call in (tree_call, growing_call, ranks_call):
            refused(call, "the draft has a vocabulary of 13, the target one of 11", target, draft=draft)


def test_one_tree_serves_all_prompts(target):
    refused(tree_call, "give one tree", target, tree=jax.tree.map(lambda x: x[None], tree_from_paths(chain_paths(2))))


def test_measuring_checks_its_own_sizes(target):
    for depth in (0, -1, 1.5):
        refused(ranks_call, "depth is", target, depth=depth)
    for prompt_tokens in (1, PROMPT, 2.0):
        refused(ranks_call, "prompt_tokens is .* from 2 to 4", target, prompt_tokens=prompt_tokens)
    for first in (-1, PROMPT - 1, 1.0):
        refused(calibration_call, "first is .* from 0 to 3", target, first=first)
    for block in (0, -1, 2.0):
        refused(block_call, "block is", target, block=block)
        refused(starts_call, "block is", target, block=block)
    for offset in (2, -1, 0.5):
        refused(block_call, "offset .* from 0 to 1", target, offset=offset)
    for shape in ((2, 3, 7), (2, 5, 6), (2, 0, 6), (3, 3, 6), (2, 6)):
        for call in (block_call, starts_call):
            refused(call, "text.hidden has shape", target, hidden=np.zeros(shape, np.float32))
    for length in (0, -1, 9, 1.0):
        refused(prediction_call, "draft_length is", target, length=length)
        refused(expected_cycles, "draft_length is .* from 1 to 3", np.ones((2, 4, 3)), length, 2)
    refused(expected_cycles, "num_tokens is 0", np.ones((2, 4, 3)), 1, 0)
    refused(prediction_call, "give a batch of one or more texts of one length, 7 or more", target, num_tokens=5)


def test_draft_settings_are_whole_numbers():
    for vocab_size, longest in ((0, 6), (3.0, 6), (3, 17), (3, 0)):
        refused(NGramDraft, "must be a whole number", vocab_size, longest)
    for settings in ({"nodes": 0}, {"nodes": 2.0}, {"nodes": 1, "branches": "3"}, {"nodes": 1, "frontier": True}):
        refused(GrowingTree, "must be a whole number", **settings)


# --- Right arguments pass, traced ones too --------------------------------------------------------------------------------


def test_checks_break_neither_jit_nor_vmap_and_trace_nothing_anew(monkeypatch, target, jit):
    traces = []
    inner = engine.decoding_loop.__wrapped__
    monkeypatch.setattr(engine, "decoding_loop", lambda *args, **options: traces.append(1) or inner(*args, **options))
    call = lambda prompts, length, temperature: (
        chain_call(target, prompts=prompts, length=length, temperature=temperature, law="sampled").tokens
    )
    run = jit(jax.vmap(call, in_axes=(None, 0, None)))
    texts = np.asarray(run(PROMPTS, jnp.arange(WIDTH + 2) - 1, jnp.float32(0.7)))[..., : PROMPT + 3]
    # A traced length beyond the window is the longest that fits, and one below 0 is none.
    np.testing.assert_array_equal(texts[0], texts[1])
    np.testing.assert_array_equal(texts[-1], texts[-2])
    assert len(np.unique(texts[1:-1, :, PROMPT:], axis=0)) > 1
    before = len(traces)
    run(PROMPTS[::-1].copy(), jnp.arange(WIDTH + 2), jnp.float32(1.4))
    assert len(traces) == before > 0


def test_values_are_read_where_there_are_any():
    assert checks.known_value(np.float32(2)) == 2
    assert checks.known_value(jnp.arange(3)).tolist() == [0, 1, 2]
    read = []
    jax.jit(lambda x: read.append(checks.known_value(x)) or x)(1.0)
    jax.vmap(lambda x: read.append(checks.known_value(x)) or x)(jnp.ones(2))
    assert read == [None, None]


def test_the_edges_of_the_ranges_are_allowed():
    for length in (0, WIDTH - 1, np.int64(1), jnp.asarray(2)):
        checks.check_traced_count("draft_length", length, least=0, most=WIDTH - 1)
    for temperature in (1e-30, 1, 1.0, np.float32(3), jnp.float32(1e9)):
        checks.check_temperature(temperature, False)
    for temperature in (0.0, -1.0, np.nan, jnp.float32(0)):
        checks.check_temperature(temperature, True)  # greedy decoding ignores it
    for dtype in (np.uint8, np.int16, np.int64, np.uint32):
        assert checks.check_tokens("prompts", PROMPTS.astype(dtype), vocab_size=11) == (BATCH, PROMPT)
    checks.check_count("width", np.int64(1))


def test_the_coldest_temperature_is_finite():
    logits = np.array([1e4, -1e4, 3.0], np.float32)
    np.testing.assert_array_equal(token_distribution(logits, Decoding(False, checks.LEAST_TEMPERATURE)), [1, 0, 0])
