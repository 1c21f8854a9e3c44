import dataclasses

import jax
import jax.numpy as jnp
import pytest

from hwmodels import KINDS, LAYER_MATRICES, catalog, kv_elements_per_token, parameters


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


def test_kinds_are_the_agreed_ones_and_hold_the_layer_matrices():
    assert KINDS[:8] == ("embed", *LAYER_MATRICES)
    assert KINDS[8:] == ("router", "expert_gate", "expert_up", "expert_down", "shared", "lm_head", "norm")


def test_query_and_key_norms_add_two_scales_of_a_head_per_layer(small):
    assert parameters(dataclasses.replace(small, qk_norm=1.0))["norm"] - parameters(small)["norm"] == 3 * 2 * 7


def test_tied_head_is_stored_once(small):
    tied = parameters(dataclasses.replace(small, tied_embeddings=1.0))
    assert tied["lm_head"] == 0
    assert tied["embed"] == 310


def test_kv_elements_by_hand(small):
    assert kv_elements_per_token(small) == 2 * 3 * 2 * 7  # keys and values, 3 layers, 2 heads of 7


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


def test_integer_sizes_do_not_wrap_under_jit():
    # 12288 * 4096 * 72 layers is beyond 2^31, which int32 would wrap around.
    large = jax.tree.map(int, dataclasses.replace(catalog.architecture("qwen3-8b"), num_layers=72))
    assert jax.jit(parameters)(large)["gate"] == pytest.approx(72 * 4096 * 12288, rel=1e-6)


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


def test_gradient(small, check_gradient):
    flagged = dataclasses.replace(small, tied_embeddings=0.7, qk_norm=0.4)
    check_gradient(lambda a: sum(parameters(a).values()) + kv_elements_per_token(a), flagged)
