import dataclasses

import jax
import pytest

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.rope import Llama3Scaling

SMALL = DecoderConfig(
    vocab_size=13, hidden_size=10, intermediate_size=7, num_layers=3, num_heads=6, num_kv_heads=2, head_dim=4
)
LLAMA_8B = DecoderConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rope_theta=500_000.0,
    rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192),
)
QWEN3_8B = DecoderConfig(
    vocab_size=151_936,
    hidden_size=4096,
    intermediate_size=12_288,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    qk_norm=True,
)
QWEN3_600M = DecoderConfig(
    vocab_size=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    qk_norm=True,
    tie_embeddings=True,
)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_num_parameters_counts_the_leaves(qk_norm, tie_embeddings):
    config = dataclasses.replace(SMALL, qk_norm=qk_norm, tie_embeddings=tie_embeddings)
    assert config.num_parameters() == sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (LLAMA_8B, 8_030_261_248),  # Llama 3.1 8B, tensors of the released checkpoint
        (QWEN3_8B, 8_190_735_360),  # Qwen3 8B, likewise
        (QWEN3_600M, 751_632_384 - 151_936 * 1024),  # Qwen3 0.6B, whose checkpoint stores the tied head again
    ],
)
def test_num_parameters_of_known_models(config, count):
    assert config.num_parameters() == count


def test_shapes_of_a_large_model_without_its_memory():
    params = abstract_params(LLAMA_8B)
    assert params["embed"].shape == params["lm_head"].shape == (128_256, 4096)
    assert params["layers"]["k"].shape == (32, 1024, 4096)
    assert params["layers"]["down"].shape == (32, 4096, 14_336)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"vocab_size": -3}, "vocab_size is -3"),
        ({"num_kv_heads": 4}, "6 query heads cannot share 4 KV heads"),
        ({"head_dim": 5}, "head_dim is 5; rotary embeddings need an even one"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)
