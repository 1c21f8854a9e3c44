"""QoQ's matrices: two levels of integers and clipped groups by hand, smoothing and order, and what inputs are rounded in."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.fitted import CalibrationSample, fitted_config, fitted_network
from jaxspec.compress.fitted import methods as module
from jaxspec.compress.fitted.methods import progressive, qoq_residual_w4, qoq_w4
from jaxspec.formats import group_quantization
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.models.rounded_inputs import input_scale_of, rounded_input
from jaxspec.models.stored import biased_rows
from jaxspec.settings.compressions import COMPRESSIONS, RESIDUAL_KINDS, RoundedInputs

pytestmark = pytest.mark.scheme_matrix

RNG = np.random.default_rng(12)
CONFIG = DecoderConfig(
    vocab_size=31, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16
)
FORM = RoundedInputs(8, rotated=True, residual=RoundedInputs(8, scaled=True))


def test_two_levels_of_integers_by_hand():
    # 119 / 119 = 1 is the row's scale. The first group spans 30 in steps of 2 with zero point 5, the second 15 in steps of 1.
    row = jnp.asarray([[-10.0, 20.0, 3.4, -0.6, 119.0, 104.0, 110.6, 119.0]])
    np.testing.assert_array_equal(progressive(row, 4), [[-10, 20, 4, 0, 119, 104, 111, 119]])
    np.testing.assert_array_equal(progressive(2 * row, 4), 2 * progressive(row, 4))
    np.testing.assert_array_equal(progressive(jnp.zeros((2, 8)), 4), jnp.zeros((2, 8)))


def test_without_rounding_smoothing_and_order_are_undone(monkeypatch):
    matrix = jnp.asarray(RNG.standard_normal((5, 96)), jnp.float32)
    norms = jnp.asarray(RNG.lognormal(0, 1, 96), jnp.float32)
    monkeypatch.setattr(module, "progressive", lambda rows, group, weight=None: rows)
    np.testing.assert_allclose(qoq_residual_w4(matrix, norms).values, matrix, rtol=1e-5)


def test_o_and_down_are_rounded_behind_scales_and_all_others_behind_a_rotation():
    x, matrix = (jnp.asarray(RNG.standard_normal((rows, 64)), jnp.float32) for rows in (6, 7))
    scale = jnp.asarray(RNG.lognormal(0, 1, 64), jnp.float32)
    found = biased_rows(x, {"down": matrix, input_scale_of("down"): scale}, "down", False, rounded=FORM)
    codes = group_quantization.decode(group_quantization.encode(x / scale[None], "int8", group_size=None))
    np.testing.assert_allclose(found, (codes * scale[None]) @ matrix.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(
        rounded_input(x, FORM, {}, "up"), rounded_input(x, RoundedInputs(8, rotated=True), {}, "up")
    )
    assert {kind for kind in CONFIG.matrix_kinds if FORM.of(kind).scaled} == {"o", "down"}
    blocks = [block for layer in range(CONFIG.num_layers) for block in CONFIG.blocks(layer)]
    assert {kind for block in blocks for kind in block.residual_matrices} <= set(RESIDUAL_KINDS)
    assert COMPRESSIONS["qoq-w4a8kv4"].inputs == FORM
    names = {name for name in fitted_config("qoq-w4a8kv4", CONFIG).layer_parameters if name.endswith("input_scale")}
    assert names == {input_scale_of("o"), input_scale_of("down")}


def test_a_network_with_outliers_within_its_blocks_loses_less(random_network):
    """Three inner channels are 30 times as large as the others, and the weights that read them as much smaller."""
    params = random_network(CONFIG, 5)
    layers = dict(params["layers"])
    outliers = jnp.asarray([3, 20, 41])
    layers["up"] = layers["up"].at[:, outliers].multiply(30.0)
    layers["down"] = layers["down"].at[..., outliers].divide(30.0)
    params = params | {"layers": layers}
    tokens = jnp.asarray(RNG.integers(31, size=(4, 16)))
    rows = lambda x: x.reshape(-1, x.shape[-1]).astype(jnp.float32)
    plain = jax.jit(lambda p: forward_text(p, CONFIG, tokens, keep_activations=rows))(params)
    norms = {name: np.linalg.norm(found, axis=1) for name, found in plain.activations.items()}
    sample = CalibrationSample(plain.activations, jnp.ones((2, 2, 16)))
    made = fitted_network("qoq-w4a8kv4", params, norms, sample)["layers"]
    config = fitted_config("qoq-w4a8kv4", CONFIG)
    turned = made | {kind: jnp.stack([qoq_w4(m, m[0]).values for m in layers[kind]]) for kind in ("o", "down")}
    all_turned = dataclasses.replace(config, rounded_inputs=RoundedInputs(8, rotated=True))

    def error(layers, config):
        found = jax.jit(lambda p: forward_text(p, config, tokens).logits)(params | {"layers": layers})
        return float(jnp.linalg.norm(found - plain.logits) / jnp.linalg.norm(plain.logits))

    assert error(made, config) < 0.9 * error(turned, all_turned)
