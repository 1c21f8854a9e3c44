"""Activations rounded where they enter products: by hand, against an engine's integers, and no trace where absent."""

import dataclasses
import importlib.resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import load_model
from jaxspec.models.rounded_inputs import input_scale_of, rounded_input
from jaxspec.settings.compressions import RoundedInputs

pytestmark = pytest.mark.network


def test_each_row_is_rounded_to_its_own_scale_by_hand():
    rows = jnp.asarray([[[1.0, -2.4, 0.5, 7.0]], [[14.0, 3.0, -5.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]]])
    # 7 / 7 = 1 and 14 / 7 = 2 are the scales; halves go away from zero.
    made = rounded_input(rows, RoundedInputs(4), {}, "q")
    np.testing.assert_array_equal(made, [[[1, -2, 1, 7]], [[14, 4, -6, 0]], [[0, 0, 0, 0]]])
    # The largest element of the second row is halved before: all are integers up to 7 then, and nothing is lost.
    scale = {input_scale_of("q"): jnp.asarray([2.0, 1.0, 1.0, 1.0])}
    np.testing.assert_array_equal(rounded_input(rows[1:2], RoundedInputs(4, scaled=True), scale, "q"), rows[1:2])
    # 127 / 127 = 1.
    eight = rounded_input(jnp.asarray([[127.0, 0.4, -1.6, 50.5]]), RoundedInputs(8), {}, "q")
    np.testing.assert_array_equal(eight, [[127, 0, -2, 51]])
    assert rounded_input(rows, None, {}, "q") is rows


def test_fewer_bits_lose_more_on_the_embedded_network():
    target = load_model("embedded")
    text = next(iter(sorted((importlib.resources.files("jaxspec.text") / "held_out").iterdir(), key=str))).read_bytes()
    tokens = jnp.asarray(np.frombuffer(text[: 6 * 128], np.uint8).reshape(6, 128).astype(np.int32))

    @jax.jit
    def log_probabilities(params):
        return {
            bits: jax.nn.log_softmax(forward_text(params, config, tokens).logits[:, :-1])
            for bits, config in {
                16: target.config,
                **{b: dataclasses.replace(target.config, rounded_inputs=RoundedInputs(b)) for b in (8, 4)},
            }.items()
        }

    found = log_probabilities(target.params)
    nats = {bits: -float(jnp.take_along_axis(f, tokens[:, 1:, None], -1).mean()) for bits, f in found.items()}
    far = {bits: float(jnp.mean(jnp.sum(jnp.exp(found[16]) * (found[16] - f), axis=-1))) for bits, f in found.items()}
    assert 0 == far[16] < far[8] < 0.02 < far[4]
    assert abs(nats[8] - nats[16]) < 0.02 < nats[4] - nats[16]
    assert nats[8] < nats[4]
