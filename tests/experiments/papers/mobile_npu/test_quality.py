"""Quality of stored networks: the bootstrap, scores of a tiny network by hand, and what the statements say of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.intervals import bootstrap
from experiments.papers.mobile_npu.accuracy import (
    FLOAT,
    Solutions,
    Text,
    Variant,
    bits_per_weight,
    task_scores,
    text_scores,
)
from jaxspec.models import DecoderConfig
from jaxspec.models.decoder import forward_text, init_params
from jaxspec.tuning import target_params

pytestmark = pytest.mark.paper

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)


def test_the_bootstrap_of_a_mean_has_the_width_of_its_standard_error():
    rng = np.random.default_rng(0)
    values = 3.0 + rng.standard_normal(400)
    found = bootstrap(np.divide, values, np.ones(400))
    assert found.ratio == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    # Paired: what both columns share cancels.
    paired = bootstrap(lambda a, b: a / b - 1.0, 2.0 * values, values)
    assert paired.low == pytest.approx(1.0) == pytest.approx(paired.high)
    with pytest.raises(ValueError, match="columns of"):
        bootstrap(np.divide, values, values[:3])


@pytest.fixture(scope="module")
def params():
    return init_params(CONFIG, jax.random.key(0))


def test_scores_are_those_of_the_logits(params):
    rows = np.random.default_rng(1).integers(0, 11, (3, 8)).astype(np.int32)
    calls = []
    logits = np.asarray(forward_text(params, CONFIG, jnp.asarray(rows[:, :-1])).logits, np.float64)
    log_chance = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    chance = np.take_along_axis(log_chance, rows[:, 1:, None], axis=-1)[..., 0]
    found = text_scores(params, CONFIG, Text(rows, np.full(3, 7)), FLOAT, lambda: calls.append(1))
    np.testing.assert_allclose(found.bits, -chance.sum(axis=-1) / np.log(2), rtol=1e-5)
    np.testing.assert_array_equal(found.likeliest, logits.argmax(axis=-1))
    assert calls == [1]
    learned = np.zeros((3, 7), bool)
    learned[:, 2:4] = True
    rows[0, 3:5] = found.likeliest[0, 2], 0
    task = task_scores(params, CONFIG, Solutions(rows, learned), FLOAT, lambda: None)
    np.testing.assert_allclose(task.chance[1:], np.exp(chance[1:, 2:4].sum(axis=-1)), rtol=1e-5)
    np.testing.assert_array_equal(task.greedy[1:], (found.likeliest == rows[:, 1:])[1:, 2:4].all(axis=-1))


def test_bits_of_a_network_count_every_matrix(params):
    stored = target_params(params)
    assert bits_per_weight(FLOAT, stored, CONFIG) == 16.0
    sizes = {kind: np.prod(CONFIG.matrix_shape(kind)) for kind in CONFIG.matrix_kinds}
    columns = {kind: CONFIG.matrix_shape(kind)[1] for kind in CONFIG.matrix_kinds}
    wanted = sum((4 + 16 / columns[kind]) * sizes[kind] for kind in sizes) / sum(sizes.values())
    assert bits_per_weight(Variant("int4-channel"), stored, CONFIG) == pytest.approx(wanted, rel=1e-6)
