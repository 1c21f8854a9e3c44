"""Quality of stored networks: the bootstrap, scores of a tiny network by hand, and what the statements say of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.mobile_npu.accuracy import (
    FLOAT,
    Solutions,
    Text,
    task_scores,
    text_scores,
)
from jaxspec.compress.kv import stored_kv
from jaxspec.models import DecoderConfig
from jaxspec.models.decoder import forward_text, init_params

pytestmark = pytest.mark.paper

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)


@pytest.fixture(scope="module")
def params():
    return init_params(CONFIG, jax.random.key(0))


def test_scores_are_those_of_the_logits(params):
    rows = np.random.default_rng(1).integers(0, 11, (3, 8)).astype(np.int32)
    calls = []
    cached = stored_kv(CONFIG)  # in which a network decodes too
    logits = np.asarray(forward_text(params, CONFIG, jnp.asarray(rows[:, :-1]), kv_codec=cached).logits, np.float64)
    log_chance = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    chance = np.take_along_axis(log_chance, rows[:, 1:, None], axis=-1)[..., 0]
    counted = np.arange(7) > np.arange(3)[:, None]
    text = Text(rows, counted, counted.sum(axis=-1))
    found = text_scores(params, CONFIG, text, FLOAT, lambda: calls.append(1))
    np.testing.assert_allclose(found.bits, -np.sum(chance, axis=-1, where=counted) / np.log(2), rtol=1e-5)
    np.testing.assert_array_equal(found.likeliest, logits.argmax(axis=-1))
    assert calls == [1]
    learned = np.zeros((3, 7), bool)
    learned[:, 2:4] = True
    rows[0, 3:5] = found.likeliest[0, 2], 0
    task = task_scores(params, CONFIG, Solutions(rows, learned), FLOAT, lambda: None)
    np.testing.assert_allclose(task.chance[1:], np.exp(chance[1:, 2:4].sum(axis=-1)), rtol=1e-5)
    np.testing.assert_array_equal(task.greedy[1:], (found.likeliest == rows[:, 1:])[1:, 2:4].all(axis=-1))
