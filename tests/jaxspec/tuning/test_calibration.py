import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.compress.kv import round_kv
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.tuning.calibration import calibrate, target_params

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
FIRST = 4
TOKENS = np.random.default_rng(1).integers(11, size=(3, 13)).astype(np.int32)


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(CONFIG, 0)


@pytest.fixture(scope="module")
def calibration(target):
    return calibrate(target, CONFIG, TOKENS, scheme=CASSANDRA1, first=FIRST)


@pytest.fixture(scope="module")
def text(target):
    return jax.jit(
        lambda: forward_text(target, CONFIG, TOKENS[:, :-1], kv_codec=round_kv, keep_activations=lambda x: x)
    )()


def test_target_is_what_bfloat16_stores():
    stored = {"a": np.array([1.00390625, -3.1415927], np.float64), "b": jnp.array([1.5], jnp.bfloat16)}
    result = target_params(stored)
    np.testing.assert_array_equal(result["a"], np.array(stored["a"], ml_dtypes.bfloat16))
    assert {x.dtype for x in jax.tree.leaves(result)} == {jnp.dtype(jnp.bfloat16)}


def test_kv_is_the_stored_one_of_all_queries(calibration, text):
    # One KV head: a row is a token's head.
    keys = np.stack(text.cache.key)[:, :, 0].transpose(0, 1, 3, 2)
    values = np.stack(text.cache.value)[:, :, 0]
    rows = np.stack([keys, values], axis=1).astype(ml_dtypes.bfloat16)
    stored = np.asarray(calibration.kv.rows).view(ml_dtypes.bfloat16)
    assert stored.shape == (2, 2, 3, 12, 6)
    np.testing.assert_allclose(stored.astype(np.float32), rows.astype(np.float32), rtol=2**-7, atol=1e-6)


@pytest.mark.network
def test_more_passes_over_the_text_find_the_same(monkeypatch, calibration, target):
    monkeypatch.setattr("jaxspec.tuning.calibration._PASS_BYTES", 4 * 36 * 13 * 2)  # two windows, then one
    parts = calibrate(target, CONFIG, TOKENS, scheme=CASSANDRA1, first=FIRST)
    assert jax.tree.structure(parts) == jax.tree.structure(calibration)
    for one, other in zip(jax.tree.leaves(parts), jax.tree.leaves(calibration), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-4, atol=2)
    np.testing.assert_allclose(parts.text.hidden, calibration.text.hidden, rtol=1e-4, atol=1e-5)


@pytest.mark.network
def test_positions_of_windowed_networks_are_joined_over_passes(monkeypatch, random_network):
    config = dataclasses.replace(CONFIG, windows=(4, None))
    given = random_network(config, 0), config, TOKENS
    whole = calibrate(*given, scheme=CASSANDRA1, first=FIRST).kv.position
    monkeypatch.setattr("jaxspec.tuning.calibration._PASS_BYTES", 4 * 36 * 13 * 2)
    parts = calibrate(*given, scheme=CASSANDRA1, first=FIRST).kv.position
    assert whole.shape == (2, 3, 12)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(whole[0], np.tile(np.arange(12), (3, 1)))
