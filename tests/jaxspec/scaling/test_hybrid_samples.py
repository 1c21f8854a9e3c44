"""Samples of a network with linear attention, whose branches share the slots of the prompt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.networks import LinearSizes
from jaxspec.compress.kv import round_kv
from jaxspec.models import DecoderConfig
from jaxspec.models.blocks import GatedDeltaNet, GroupedAttention
from jaxspec.models.decoder import forward_text
from jaxspec.scaling import sample_continuations
from jaxspec.speculate.sampling import SAMPLING

CONFIG = DecoderConfig(
    vocab_size=7,
    hidden_size=16,
    intermediate_size=24,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    linear=LinearSizes(key_heads=1, value_heads=3, key_dim=5, value_dim=4, conv_tokens=4),
    attention=(GatedDeltaNet(), GroupedAttention(), GatedDeltaNet()),
)
PROMPT = np.array([3, 1, 4, 1, 5], np.int32)


@pytest.mark.network
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1]], ids=["prompt", "one token"])
def test_samples_are_as_likely_as_the_network_says_of_their_texts(prompt, random_network):
    params = random_network(CONFIG, 5, sharpness=2.0)
    settings = {"seed": jax.random.key(2), "num_tokens": 6, "width": 4, "decoding": SAMPLING}
    found = sample_continuations(params, CONFIG, prompt, samples=4, **settings)
    assert len({row.tobytes() for row in found.tokens}) > 1
    texts = np.concatenate([np.tile(prompt, (4, 1)), found.tokens], axis=1).astype(np.int32)
    logits = forward_text(params, CONFIG, jnp.asarray(texts[:, :-1]), kv_codec=round_kv).logits[:, len(prompt) - 1 :]
    likely = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), found.tokens[:, :, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(
        found.log_prob, likely, rtol=0, atol=0.02
    )  # keys are rounded to bfloat16 in another order
