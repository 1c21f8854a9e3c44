"""Latent attention by hand, in both of its forms, and with its cache through whatever a cache goes through."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, forward_of, random_params

from hwmodels.networks import LatentSizes
from jaxspec.compress.kv import as_cache, prepare_kv, round_kv, token_rows
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models import decoder
from jaxspec.models.blocks import LatentAttention, StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, first_slots, take_slots, write_cache

pytestmark = pytest.mark.network

#: Heads whose rotated part is longer than the rest, values of another length, a latent that is shorter than all heads' keys.
CONFIG = DecoderConfig(
    vocab_size=13,
    hidden_size=20,
    intermediate_size=14,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    head_dim=5,
    rope_theta=500.0,
    interleaved_rope=True,
    score_scale=0.4,
    qkv_bias=True,
    o_bias=True,
    latent=LatentSizes(kv_rank=11, rope_head_dim=6, value_head_dim=7, query_rank=9, norm_eps=1e-3),
    attention=(LatentAttention(),),
)
NO_QUERY_RANK = dataclasses.replace(CONFIG, latent=dataclasses.replace(CONFIG.latent, query_rank=None))
PARAMS = random_params(CONFIG)
TOKENS = np.random.default_rng(1).integers(13, size=(2, 9)).astype(np.int32)
run = jax.jit(forward_of, static_argnames=("config", "kv_codec", "frugal"))


def positions(first, count):
    return np.broadcast_to(first + np.arange(count, dtype=np.int32), (2, count))


def whole(config=CONFIG, params=PARAMS, tokens=TOKENS, **options):
    count = tokens.shape[1]
    return run(params, config, tokens=tokens, positions=positions(0, count), mask=causal_mask(2, count), **options)


def by_hand(normed, weights, sizes):
    """One head and one token at a time, keys and values written out, in float64."""
    latent = sizes.latent
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    norm = lambda x, name: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + latent.norm_eps) * w[name]

    def turned(x, position):
        planes = np.arange(latent.rope_head_dim // 2)
        angle = position * sizes.rope_theta ** (-2 * planes / latent.rope_head_dim)
        pairs = (x[0::2] + 1j * x[1::2]) * np.exp(1j * angle)
        return np.stack([pairs.real, pairs.imag], -1).reshape(-1)

    output = np.zeros(normed.shape)
    for b in range(len(normed)):
        x = np.asarray(normed[b], np.float64)
        low = norm(x @ w["q_down"].T + w["q_down_bias"], "q_down_norm") if "q_down" in w else x
        queries = (low @ w["q_up" if "q_up" in w else "q"].T).reshape(len(x), sizes.num_heads, -1)
        down = x @ w["kv_down"].T + w["kv_down_bias"]
        latents = norm(down[:, : latent.kv_rank], "kv_down_norm")
        for t in range(len(x)):
            heads = []
            for h in range(sizes.num_heads):
                rows = slice(h * sizes.head_dim, (h + 1) * sizes.head_dim)
                values = slice(h * latent.value_head_dim, (h + 1) * latent.value_head_dim)
                plain, rotated = queries[t, h, : sizes.head_dim], turned(queries[t, h, sizes.head_dim :], t)
                scores = [
                    plain @ (w["k_up"][rows] @ latents[s]) + rotated @ turned(down[s, latent.kv_rank :], s)
                    for s in range(t + 1)
                ]
                share = np.exp(np.array(scores) * sizes.score_scale)
                heads.append((share / share.sum()) @ (latents[: t + 1] @ w["v_up"][values].T))
            output[b, t] = np.concatenate(heads) @ w["o"].T + w["o_bias"]
    return output


@pytest.mark.parametrize("frugal", [False, True])
@pytest.mark.parametrize("config", [CONFIG, NO_QUERY_RANK], ids=["low-rank queries", "whole queries"])
def test_equals_attention_by_hand(config, frugal):
    block = LatentAttention()
    weights = {name: leaf[1] for name, leaf in random_params(config)["layers"].items()}
    weights = {name: weights[name] for name in {**block.matrices(config), **block.vectors(config)}}
    normed = jnp.asarray(np.random.default_rng(2).standard_normal((2, 6, 20), np.float32))
    step = StepInput(jnp.asarray(positions(0, 6)), causal_mask(2, 6), frugal=frugal)
    apply = jax.jit(lambda normed, weights: block.apply(normed, weights, config, step))
    result = apply(normed, weights)
    np.testing.assert_allclose(result.output, by_hand(normed, weights, config), rtol=2e-4, atol=2e-5)
    assert {name: value.shape[-1] for name, value in result.inputs.items()} == {
        "qkv": 20,
        "kv_latent": 11,
        "o": 21,
        **({"q_latent": 9} if config is CONFIG else {}),
    }


@pytest.mark.parametrize("frugal", [False, True])
def test_both_forms_are_the_same_function(monkeypatch, frugal):
    forms = []
    for absorbed in (False, True):
        monkeypatch.setattr("jaxspec.models.blocks.latent_attention.absorbs", lambda *of, form=absorbed: form)
        fresh = jax.jit(lambda params: decoder.forward_text(params, CONFIG, TOKENS, frugal=frugal))
        forms.append(fresh(PARAMS).logits)
    np.testing.assert_allclose(*forms, **CLOSE)
    assert np.abs(forms[0] - forms[1]).max() > 0


# What rounds to the next bfloat16 in one of the two and not in the other moves logits by more than float32 does.
@pytest.mark.parametrize(("codec", "close"), [(None, CLOSE), (round_kv, {"atol": 0.02})], ids=["exact", "rounded"])
def test_decoding_through_the_cache_is_one_pass_over_the_text(codec, close):
    # Prompts of 4 and 2 tokens at slots 3 and 1, then single tokens and a step of two.
    expected = whole(kv_codec=codec)
    cache, length, first = empty_cache(CONFIG, 2, 14), np.array([4, 2]), np.array([3, 1])
    assert (cache.key.shape, cache.value.shape) == ((2, 2, 1, 6, 14), (2, 2, 1, 14, 11))
    prefill = whole(tokens=TOKENS[:, :4], kv_codec=codec)
    cache = write_cache(cache, prefill.cache, first)
    for width in (1, 2, 1):
        slots = np.arange(14)
        seen = (slots >= first[:, None]) & (slots < (first + length)[:, None])
        at = length[:, None] + np.arange(width)
        result = run(
            PARAMS,
            CONFIG,
            tokens=np.take_along_axis(TOKENS, at, axis=1),
            positions=at,
            mask=causal_mask(2, width),
            sources=[CachedKV(cache, np.broadcast_to(seen[:, None], (2, width, 14)))],
            kv_codec=codec,
        )
        for row in range(2):
            np.testing.assert_allclose(result.logits[row], expected.logits[row, at[row]], **close)
        cache, length = write_cache(cache, result.cache, first + length), length + width


def test_a_tree_over_a_shared_prefix_and_a_path_of_its_own():
    # Tokens 0 to 3 are one source that both sequences share, 4 and 5 another one; siblings 6 and 7 do not see each other.
    tokens = np.concatenate([np.repeat(TOKENS[:1, :4], 2, axis=0), TOKENS[:, 4:8]], axis=1)
    text = whole(tokens=tokens)
    part = lambda first, stop: KVCache(text.cache.key[..., first:stop], text.cache.value[..., first:stop, :])
    shared = jax.tree.map(lambda leaf: leaf[:, :1], part(0, 4))
    sees = lambda count: np.ones((2, 2, count), bool)
    result = run(
        PARAMS,
        CONFIG,
        tokens=tokens[:, 6:8],
        positions=np.full((2, 2), 6),
        mask=np.broadcast_to(np.eye(2, dtype=bool), (2, 2, 2)),
        sources=[CachedKV(shared, sees(4)), CachedKV(part(4, 6), sees(2))],
    )
    for node in range(2):
        path = np.concatenate([tokens[:, :6], tokens[:, 6 + node : 7 + node]], axis=1)
        np.testing.assert_allclose(result.logits[:, node], whole(tokens=path).logits[:, -1], **CLOSE)


def test_slots_are_moved_and_rows_are_compressed():
    cache = jax.tree.map(round_kv, whole().cache)
    moved = take_slots(cache, np.array([[8, 0], [2, 5]]))
    np.testing.assert_array_equal(moved.value[:, 0], cache.value[:, 0][:, :, [8, 0]])
    np.testing.assert_array_equal(moved.key[:, 1], cache.key[:, 1][..., [2, 5]])
    jax.tree.map(
        np.testing.assert_array_equal, first_slots(cache, 4), KVCache(cache.key[..., :4], cache.value[..., :4, :])
    )
    layer = jax.tree.map(lambda leaf: leaf[1], cache)
    rows = token_rows(layer)
    assert rows.shape == (1, 2, 9, 6 + 11)  # one row for each token: the rotated key, then the latent
    np.testing.assert_array_equal(rows[0, 1, 4], np.concatenate([layer.key[1, 0, :, 4], layer.value[1, 0, 4]]))
    prepared = prepare_kv(CASSANDRA1, cache)
    jax.tree.map(np.testing.assert_array_equal, as_cache(rows, prepared.shape), layer)
