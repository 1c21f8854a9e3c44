import dataclasses

import jax
import jax.numpy as jnp
import pytest

from hwmodels import KINDS, catalog, kv_elements_per_token, parameters


def test_parameters_by_hand(small):
    # q: 4 heads of 7 on 10 inputs = 280 per layer, 840 in 3. k and v: 2 heads, half of it. o mirrors q.
    # gate, up, down: 10 * 21 = 210, 630 in 3. embed and head: 31 * 10. norms: 2 * 10 per layer and 10 at the end = 70.
    expected = dict.fromkeys(KINDS, 0.0) | {
        "embed": 310,
        "q": 840,
        "k": 420,
        "v": 420,
        "o": 840,
        "gate": 630,
        "up": 630,
        "down": 630,
        "lm_head": 310,
        "norm": 70,
    }
    assert parameters(small) == expected


def test_tied_head_is_stored_once(small):
    tied = parameters(dataclasses.replace(small, tied_embeddings=1.0))
    assert tied["lm_head"] == 0
    assert tied["embed"] == 310


def test_kv_of_llama_is_131_kb_per_token_in_16_bits():
    # The FPGA tree-speculation paper's number for Llama-3.1-8B: 131 kB of grouped-query KV per token.
    assert kv_elements_per_token(catalog.architecture("llama-3.1-8b")) * 2 == 131_072


@pytest.mark.parametrize(
    ("name", "published"), [("llama-3.1-8b", 8.03e9), ("qwen3-8b", 8.19e9), ("qwen3-4b", 4.02e9), ("embedded", 3.08e6)]
)
def test_totals_match_the_published_ones(name, published):
    assert sum(parameters(catalog.architecture(name)).values()) == pytest.approx(published, rel=5e-3)


def test_total_of_llama_is_exact():
    assert sum(parameters(catalog.architecture("llama-3.1-8b")).values()) == 8_030_261_248


@pytest.mark.device_matrix
def test_stacked_architectures_go_through_one_vmap(jit_once):
    architectures = [catalog.architecture(name) for name in catalog.architecture_names()]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *architectures)
    counted = jit_once(jax.vmap(parameters))
    counted(jax.tree.map(lambda leaf: 2 * leaf, stacked))
    table = counted(stacked)
    for i, architecture in enumerate(architectures):
        for kind, count in parameters(architecture).items():
            assert float(table[kind][i]) == pytest.approx(count, rel=1e-6)
