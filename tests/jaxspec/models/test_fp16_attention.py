"""Attention in float16 with exponentials from a table."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import DecoderConfig
from jaxspec.models.attention import KVSource, attend
from jaxspec.models.decoder import forward_text
from jaxspec.models.fp16_attention import attend_fp16, flash_state

pytestmark = pytest.mark.network


def drawn(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape, np.float32))


def sources_of(rng, batch, kv_heads, head_dim, slots, tokens):
    return [
        KVSource(
            drawn(rng, rows, kv_heads, head_dim, n),
            drawn(rng, rows, kv_heads, n, head_dim),
            jnp.asarray(rng.random((batch, tokens, n)) < 0.8).at[..., 0].set(True),
        )
        for rows, n in zip((1, batch), slots, strict=True)
    ]


@pytest.mark.parametrize(
    ("slots", "cap", "sinks"),
    [((3, 5), None, False), ((40, 33), None, False), ((64, 7), 5.0, False), ((3, 40), None, True)],
)
def test_it_is_attention(slots, cap, sinks):
    rng = np.random.default_rng(1)
    batch, tokens, heads, kv_heads, head_dim = 2, 3, 4, 2, 8
    query, sources = (
        drawn(rng, batch, tokens, heads, head_dim),
        sources_of(rng, batch, kv_heads, head_dim, slots, tokens),
    )
    sinks = drawn(rng, heads) if sinks else None
    exact, found = (function(query, sources, cap=cap, sinks=sinks) for function in (attend, attend_fp16))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, atol=4e-3)
    # Float16 all the way: every number is one, and the result is not the exact one.
    np.testing.assert_array_equal(found, np.asarray(found).astype(np.float16))
    assert float(jnp.max(jnp.abs(found - exact))) > 1e-5


def test_exponentials_of_all_non_positive_numbers_through_the_attention_itself():
    patterns = np.arange(0x8000, 0x10000, dtype=np.uint16)
    scores = patterns.view(np.float16)
    finite = ~np.isnan(scores)
    # Two keys: the first scores 0 and weighs 1 on a value of 0, the second scores the pattern and weighs its exponential.
    state = flash_state(
        jnp.asarray(scores[finite])[:, None],
        jnp.asarray([[0.0, 1.0]], jnp.float16),
        jnp.asarray([[0.0], [1.0]], jnp.float16),
        jnp.ones((int(finite.sum()), 2), bool),
        scale=1.0,
    )
    # Minus infinity times the key's 0 is no number, on the unit as here.
    numbers = np.isfinite(scores[finite])
    wanted = np.exp(scores[finite].astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(np.asarray(state.output)[numbers, 0].view(np.uint16), wanted[numbers].view(np.uint16))
    assert numbers.sum() == 0x7C00
    np.testing.assert_array_equal(state.row_max[numbers], 0)
    np.testing.assert_array_equal(
        np.asarray(state.row_sum)[numbers], (1 + wanted[numbers].astype(np.float32)).astype(np.float16)
    )


def test_a_network_attends_in_float16(random_network):
    config = DecoderConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
    )
    params = random_network(config, 2)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 32, (2, 40)))
    exact, found = (forward_text(params, config, tokens, attend=way).logits for way in (None, attend_fp16))
    np.testing.assert_allclose(found, exact, atol=2e-2)
    assert float(jnp.max(jnp.abs(found - exact))) > 1e-6
    assert float(jnp.mean(jnp.argmax(found, -1) == jnp.argmax(exact, -1))) > 0.97
