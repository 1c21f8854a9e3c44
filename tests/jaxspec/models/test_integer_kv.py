"""Caches of integers: what is written by hand, decoding against one pass, smoothing that leaves scores, and who is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.fitted import CalibrationSample, fitted_config, fitted_network
from jaxspec.compress.fitted.methods import key_scale
from jaxspec.compress.kv import stored_kv
from jaxspec.formats import asymmetric
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward, forward_text
from jaxspec.models.kv_cache import CachedKV
from jaxspec.models.rope import rotate
from jaxspec.models.rounded_inputs import KEY_SCALE, as_integers, rotate_rows
from jaxspec.models.stored import as_computed
from jaxspec.settings.compressions import IntegerKV

pytestmark = pytest.mark.network

RNG = np.random.default_rng(7)
PLAIN = DecoderConfig(
    vocab_size=11, hidden_size=12, intermediate_size=20, num_layers=2, num_heads=6, num_kv_heads=2, head_dim=6
)
INTEGERS = dataclasses.replace(PLAIN, integer_kv=IntegerKV(4))
TOKENS = jnp.asarray(RNG.integers(11, size=(2, 7)))


def test_what_is_written_is_what_a_cache_of_integers_holds(random_network):
    params = random_network(PLAIN, 1)
    written = lambda config: jax.jit(lambda p: forward_text(p, config, TOKENS).cache)(params)
    plain, found = written(PLAIN), written(INTEGERS)
    # The first layer reads what it reads without rounding. Of keys slots come last, of values elements.
    key, value = jnp.swapaxes(plain.key[0], -1, -2), plain.value[0]
    for rows, made in ((key, jnp.swapaxes(found.key[0], -1, -2)), (value, found.value[0])):
        expected = asymmetric.decode(asymmetric.encode(rows, 4))
        np.testing.assert_allclose(made, expected, atol=1e-6)
        assert float(jnp.max(jnp.abs(expected - rows))) > 1e-3
        assert max(len(np.unique(row)) for row in np.asarray(made).reshape(-1, 6)) <= 16
    # Later layers read other hidden states: attention has read rounded rows.
    assert float(jnp.max(jnp.abs(found.key[1] - plain.key[1]))) > 1e-3


def test_prefill_and_decoding_read_the_same_rounded_rows(random_network):
    params, codec = as_computed(random_network(INTEGERS, 2)), stored_kv(INTEGERS)
    whole = jax.jit(lambda p: forward_text(p, INTEGERS, TOKENS, kv_codec=codec).logits)(params)

    @jax.jit
    def in_two(params):
        first = forward_text(params, INTEGERS, TOKENS[:, :6], kv_codec=codec)
        return forward(
            params,
            INTEGERS,
            TOKENS[:, 6:],
            StepInput(
                jnp.full((2, 1), 6),
                jnp.ones((2, 1, 1), bool),
                sources=[CachedKV(first.cache, jnp.ones((2, 1, 6), bool))],
                kv_codec=codec,
            ),
        ).logits

    np.testing.assert_allclose(in_two(params)[:, 0], whole[:, -1], atol=2e-5 * float(jnp.max(jnp.abs(whole))))


def test_smoothed_keys_are_those_of_an_engine_that_scales_its_queries(random_network):
    key, query = (jnp.asarray(RNG.standard_normal((1, 5, 2, 6)), jnp.float32) for _ in range(2))
    key = key * jnp.asarray([1, 9, 1, 1, 1, 1], jnp.float32)[None, None, None]
    # Both elements of a plane, i and i + 3, share a scale.
    largest = jnp.max(jnp.abs(key), axis=(0, 1))
    scale = key_scale(jnp.maximum(largest, jnp.roll(largest, 3, axis=-1)))
    form = IntegerKV(4, smoothed_keys=True)
    _, made, _ = as_integers(query, key, key, form, {KEY_SCALE: scale})
    own = scale.reshape(2, 6)[None, None]
    positions, frequency = jnp.arange(5)[None], np.asarray([1.0, 0.3, 0.1], np.float32)
    # The engine scales before the rotation, and rounds behind it.
    engine = lambda x: asymmetric.decode(asymmetric.encode(rotate(x / own, positions, frequency), 4))
    unrounded, mine, _ = as_integers(query, rotate(key, positions, frequency), key, form, {KEY_SCALE: scale})
    assert unrounded is query
    scores = jnp.einsum("bthd,bshd->bhts", rotate(query * own, positions, frequency), engine(key))
    ours = jnp.einsum("bthd,bshd->bhts", rotate(query, positions, frequency), mine)
    np.testing.assert_allclose(ours, scores, atol=1e-4)
    error = lambda made: float(jnp.mean(jnp.abs(made - key)[..., jnp.asarray([0, 2, 3, 4, 5])]))
    _, plain, _ = as_integers(query, key, key, IntegerKV(4), {})
    assert error(made) < 0.7 * error(plain)


def test_scores_of_rotated_queries_and_keys_are_those_of_integers_in_the_rotated_space():
    """Four query heads share two of keys; one element is large in all tokens, which a rotation spreads over its head."""
    query, key = (jnp.asarray(RNG.standard_normal((1, 5, heads, 16)), jnp.float32) for heads in (4, 2))
    query, key = (x.at[..., 6].multiply(40.0) for x in (query, key))
    form = IntegerKV(4, rotated_keys=True, queries=True, key_share=0.9)
    codes = lambda x: asymmetric.decode(asymmetric.encode(rotate_rows(x.reshape(-1, 16)), 4, share=0.9)).reshape(
        x.shape
    )
    score = lambda query, key: jnp.einsum("bthd,bshd->bhts", query, jnp.repeat(key, 2, axis=2))
    made = as_integers(query, key, key, form, {})
    expected = score(codes(query), codes(key))
    np.testing.assert_allclose(score(*made[:2]), expected, atol=2e-5 * float(jnp.max(jnp.abs(expected))))
    assert float(jnp.max(jnp.abs(made[0] - query))) > 0.1
    # Values are rounded where they are, over their whole range.
    np.testing.assert_array_equal(made[2], asymmetric.decode(asymmetric.encode(key, 4)))
    small = jnp.delete(jnp.arange(16), 6)
    error = lambda form: float(jnp.mean(jnp.abs(as_integers(query, key, key, form, {})[1] - key)[..., small]))
    assert error(form) < 0.8 * error(IntegerKV(4))
    with pytest.raises(ValueError, match="queries and smoothed_keys are both given"):
        IntegerKV(4, smoothed_keys=True, queries=True)


def test_a_compression_brings_its_keys_scales(random_network):
    params = random_network(PLAIN, 3)
    norms = {"qkv": (2, 12), "o": (2, 36), "gate_up": (2, 12), "down": (2, 20)}
    norms = {name: jnp.asarray(RNG.lognormal(0, 1, shape), jnp.float32) for name, shape in norms.items()}
    largest = jnp.asarray(RNG.lognormal(0, 1, (2, 2, 6)), jnp.float32)
    config = fitted_config("qoq-w4a8kv4", PLAIN)
    assert config.integer_kv == IntegerKV(4, smoothed_keys=True)
    with pytest.raises(ValueError, match="give a CalibrationSample"):
        fitted_network("qoq-w4a8kv4", params, norms)
    inputs = {name: RNG.standard_normal((2, 9, width)).astype(np.float32) for name, width in (("o", 36), ("down", 20))}
    made = fitted_network("qoq-w4a8kv4", params, norms, CalibrationSample(inputs, largest))
    found = np.asarray(made["layers"][KEY_SCALE])
    np.testing.assert_allclose(found / found[:, :1], np.sqrt(largest / largest[:, :1, :1]).reshape(2, 12), rtol=1e-4)
    run = jax.jit(lambda layers: forward_text(params | {"layers": layers}, config, TOKENS).logits)
    moved = made["layers"] | {KEY_SCALE: jnp.ones_like(found)}
    assert np.any(run(made["layers"]) != run(moved))
