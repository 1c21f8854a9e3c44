"""Spaces without outliers: rotations and orders by hand, products as an engine takes them, and what they are worth."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.fitted import CalibrationSample, fitted_config, fitted_network
from jaxspec.compress.fitted.methods import duquant_space, duquant_w4
from jaxspec.formats import asymmetric
from jaxspec.models import rounded_inputs
from jaxspec.models.config import INPUT_OF, DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.models.rounded_inputs import input_scale_of, input_space_of, spread_rows
from jaxspec.models.stored import biased_rows
from jaxspec.settings.compressions import RoundedInputs

pytestmark = pytest.mark.scheme_matrix

RNG = np.random.default_rng(9)
CONFIG = DecoderConfig(
    vocab_size=31, hidden_size=96, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16
)


def outliers(rows, columns, channels=(3, 40, 41), by=30.0):
    found = RNG.standard_normal((rows, columns)).astype(np.float32)
    found[:, list(channels)] *= by
    return found


def test_a_space_is_two_rotations_around_an_order_and_is_left_again():
    sample = jnp.asarray(outliers(24, 96))
    found = jax.jit(duquant_space)(jnp.ones(96), sample)
    dense = np.kron(np.eye(3), found.space.rotations[:32]) @ np.eye(96)[:, np.asarray(found.space.order)]
    dense = dense @ np.kron(np.eye(3), found.space.rotations[32:])
    np.testing.assert_allclose(spread_rows(sample, found.space), sample @ dense, rtol=1e-4, atol=1e-4)
    there = spread_rows(sample, found.space)
    np.testing.assert_allclose(spread_rows(there, found.space, back=True), sample, atol=1e-4)


def test_products_are_those_of_integers_in_the_space():
    x, matrix = outliers(6, 96), RNG.standard_normal((7, 96)).astype(np.float32)
    space = duquant_space(jnp.asarray(np.abs(matrix).max(axis=0)), jnp.asarray(x))
    made = duquant_w4(jnp.asarray(matrix), jnp.ones(96), space).values
    names = {name: getattr(space.space, field) for field, name in input_space_of("up").items()}
    layer = {"up": made, input_scale_of("up"): space.scale} | names
    form = RoundedInputs(4, scaled=True, spread=True, range_share=0.9)
    found = biased_rows(jnp.asarray(x), layer, "up", False, rounded=form)
    codes = lambda rows, share: asymmetric.decode(asymmetric.encode(spread_rows(rows, space.space), 4, share=share))
    inputs, weights = codes(x / space.scale[None], 0.9), codes(matrix * space.scale[None], 0.8)
    expected = np.asarray(inputs, np.float64) @ np.asarray(weights, np.float64).T
    assert np.abs(expected - x @ matrix.T).max() > 20 * np.abs(found - expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.fixture(scope="module")
def network():
    """Parameters whose normed hidden states have outliers in three channels, tokens, and what the fits are made of."""
    rng = np.random.default_rng(4)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32) * shape[-1] ** -0.5
    shapes = {name: (2, *parameter.shape) for name, parameter in CONFIG.layer_parameters.items()}
    layers = {name: np.ones(s, np.float32) if name.endswith("norm") else draw(*s) for name, s in shapes.items()}
    for norm, kinds in (("attention_norm", "qkv"), ("mlp_norm", ("gate", "up"))):
        layers[norm][:, [3, 40, 41]] *= 40.0
        for kind in kinds:  # the network's function stays what it was
            layers[kind][..., [3, 40, 41]] /= 40.0
    embed = rng.standard_normal((31, 96)).astype(np.float32)
    params = {"embed": embed, "lm_head": draw(31, 96), "final_norm": np.ones(96, np.float32), "layers": layers}
    params = jax.tree.map(jnp.asarray, params)
    tokens = jnp.asarray(rng.integers(31, size=(4, 16)))
    rows = jax.jit(lambda p: forward_text(p, CONFIG, tokens, keep_activations=lambda x: x.reshape(-1, x.shape[-1])))
    plain = rows(params)
    norms = {name: np.linalg.norm(found, axis=1) for name, found in plain.activations.items()}
    return params, tokens, norms, CalibrationSample(plain.activations, jnp.ones((2, 2, 16))), plain.logits


def test_without_rounding_logits_are_those_of_the_network(network, monkeypatch):
    params, tokens, norms, sample, plain = network
    made = fitted_network("duquant-w4a4", params, norms, sample)["layers"]
    own = params | {"layers": made | {kind: params["layers"][kind] for kind in CONFIG.matrix_kinds}}
    run = lambda: jax.jit(lambda p: forward_text(p, fitted_config("duquant-w4a4", CONFIG), tokens).logits)(own)
    largest = float(jnp.max(jnp.abs(plain)))
    assert float(jnp.max(jnp.abs(run() - plain))) > 1e-2 * largest
    monkeypatch.setattr(rounded_inputs, "_integers", lambda rows, form: rows)
    assert float(jnp.max(jnp.abs(run() - plain))) < 2e-5 * largest


def test_outliers_cost_less_in_the_space_than_out_of_it(network):
    params, tokens, norms, sample, plain = network

    def error(layers, config):
        found = jax.jit(lambda p: forward_text(p | {"layers": layers}, config, tokens).logits)(params)
        return float(jnp.sqrt(jnp.mean(jnp.square(found - plain)) / jnp.mean(jnp.square(plain))))

    rounded = lambda matrix: asymmetric.decode(asymmetric.encode(matrix, 4, share=0.8))
    in_place = {kind: rounded(params["layers"][kind]) for kind in CONFIG.matrix_kinds}
    where_they_are = dataclasses.replace(CONFIG, rounded_inputs=RoundedInputs(4, range_share=0.9))
    spread = fitted_network("duquant-w4a4", params, norms, sample)["layers"]
    plainly = fitted_network("rotated-w4a4", params, norms)["layers"]
    found = error(spread, fitted_config("duquant-w4a4", CONFIG))
    assert found < 0.5 * error(params["layers"] | in_place, where_they_are)
    # Most of that is smoothing, as these channels are large in all tokens; the rotations add to it.
    alone = {kind: spread[input_scale_of(kind)] for kind in CONFIG.matrix_kinds}
    smoothed = {kind: rounded(params["layers"][kind] * s[:, None]) / s[:, None] for kind, s in alone.items()}
    scales = {input_scale_of(kind): scale for kind, scale in alone.items()}
    form = RoundedInputs(4, scaled=True, range_share=0.9)
    smooth = error(params["layers"] | smoothed | scales, dataclasses.replace(CONFIG, rounded_inputs=form))
    assert found < smooth
    # A plain rotation leaves what the outliers of a block add up to; its weights are finer, in groups.
    assert found < 0.5 * error(plainly, fitted_config("rotated-w4a4", CONFIG))
    assert {INPUT_OF[kind] for kind in CONFIG.matrix_kinds} == set(sample.inputs)
