"""Arguments outside their documented ranges: each public function that decodes or measures says so in one line, on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from argument_calls import (
    BATCH,
    CONFIG,
    DECODERS,
    PROMPT,
    PROMPTS,
    READERS,
    SAMPLERS,
    SEED,
    WIDTH,
    chain_call,
    changed,
)

from jaxspec import checks
from jaxspec.speculate import engine

# Wrong arrays are what these tests are about.
pytestmark = pytest.mark.wrong_arrays


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0)


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


def one_by_one(names, kinds):
    """All kinds of one function, and the first kind of each: all check their arguments by the same functions."""
    first, *_ = names
    return list(dict.fromkeys([*((first, kind) for kind in kinds), *((name, next(iter(kinds))) for name in names)]))


def refused(call, message, *arguments, **options):
    with pytest.raises(ValueError, match=message) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("name", "kind"), one_by_one(READERS, BAD_TOKENS))
def test_tokens_must_be_those_of_the_vocabulary(target, name, kind):
    tokens, message = BAD_TOKENS[kind]
    refused(READERS[name], message, target, prompts=tokens)


@pytest.mark.parametrize(("name", "kind"), one_by_one(SAMPLERS, BAD_TEMPERATURES))
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


@pytest.mark.parametrize(("name", "kind"), one_by_one(SAMPLERS, BAD_FILTERS))
def test_filters_leave_something(target, name, kind):
    settings, message = BAD_FILTERS[kind]
    refused(SAMPLERS[name], message, target, **settings)


@pytest.mark.parametrize(
    "length", [WIDTH, -1, WIDTH + 96, np.int32(WIDTH), jnp.asarray(WIDTH), 1.0, True, np.ones(2, int)]
)
def test_a_draft_has_less_tokens_than_the_window(target, length):
    refused(chain_call, "draft_length .* from 0 to 3", target, length=length)
    refused(chain_call, "draft_length .* from 0 to 3", target, length=length, greedy=True)


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


# --- Right arguments pass, traced ones too --------------------------------------------------------------------------------


@pytest.mark.network
def test_argument_checks_work_under_jit_and_vmap(monkeypatch, target):
    traces = []
    inner = engine.decoding_loop.__wrapped__
    monkeypatch.setattr(engine, "decoding_loop", lambda *args, **options: traces.append(1) or inner(*args, **options))
    call = lambda prompts, length, temperature: (
        chain_call(target, prompts=prompts, length=length, temperature=temperature, law="sampled").tokens
    )
    run = jax.jit(jax.vmap(call, in_axes=(None, 0, None)))
    texts = np.asarray(run(PROMPTS, jnp.arange(WIDTH + 2) - 1, jnp.float32(0.7)))[..., : PROMPT + 3]
    # A traced length beyond the window is the longest that fits, and one below 0 is none.
    np.testing.assert_array_equal(texts[0], texts[1])
    np.testing.assert_array_equal(texts[-1], texts[-2])
    assert len(np.unique(texts[1:-1, :, PROMPT:], axis=0)) > 1
    before = len(traces)
    run(PROMPTS[::-1].copy(), jnp.arange(WIDTH + 2), jnp.float32(1.4))
    assert len(traces) == before > 0


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
