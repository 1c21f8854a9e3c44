"""Networks with linear attention against transformers, beyond what test_hf_golden asks of every family."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_hf_golden import GOLDEN, TOLERANCE, forward, forward_text, loaded, wide_error, write_cache

from hwmodels import catalog
from jaxspec.compress.weights import sum_of_squares
from jaxspec.errors import InputError
from jaxspec.models import decoder, kv_cache
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import decoder_config
from jaxspec.models.hf_load import load_directory
from jaxspec.models.layerwise import input_squares, open_network

pytestmark = pytest.mark.usefixtures("exact_products")

CASE = "qwen3_5_hybrid"
EXPERTS = ("qwen3_next_experts", "qwen3_5_moe_decoder", "qwen3_5_moe_multimodal")


def changed(leaf, change):
    return lambda config, layers: layers | {leaf: change(layers[leaf])}


def open_gates(config, layers):
    q = layers["q"]
    by_head = q.reshape(len(q), config.num_heads, 2, config.head_dim, -1)
    return layers | {"q": by_head.at[:, :, 1].set(0).reshape(q.shape)}


def gates_behind_queries(config, layers):
    # As if all queries came first, then all gates.
    q = layers["q"]
    split = q.reshape(len(q), 2, config.num_heads, config.head_dim, -1).swapaxes(1, 2)
    return layers | {"q": split.reshape(q.shape)}


def value_heads_dealt_in_turn(config, layers):
    # Value head h reads key head h mod key_heads instead of h // (value_heads / key_heads).
    own, rows = config.linear, layers["in_qkv"]
    values = rows[:, 2 * own.keys :]
    turned = values.reshape(len(rows), own.key_heads, -1, own.value_dim, rows.shape[-1]).swapaxes(1, 2)
    return layers | {"in_qkv": jnp.concatenate([rows[:, : 2 * own.keys], turned.reshape(values.shape)], axis=1)}


def gates_exchanged(config, layers):
    return layers | {"in_z": jnp.roll(layers["in_z"], config.linear.values, axis=1)}


MUTANTS = {
    "no attention gate": open_gates,
    "gates behind queries": gates_behind_queries,
    "no decay": changed("a_log", lambda leaf: leaf - 20),
    "no bias of decay": changed("dt_bias", jnp.zeros_like),
    "taps in reverse": changed("conv", lambda leaf: leaf[..., ::-1]),
    "no scales of outputs": changed("out_norm", jnp.ones_like),
    "all is learned": changed("in_b", lambda leaf: leaf + 3),
    "key heads in turn": value_heads_dealt_in_turn,
}
OF_CONVOLUTIONS = {"gates exchanged": gates_exchanged, "taps in reverse": MUTANTS["taps in reverse"]}


@pytest.mark.parametrize(
    ("case", "mutant"), [*((CASE, name) for name in MUTANTS), *(("lfm2_released", name) for name in OF_CONVOLUTIONS)]
)
def test_the_comparison_sees_a_wrong_network(case, mutant):
    model, expected = loaded(case)
    layers = (MUTANTS | OF_CONVOLUTIONS)[mutant](model.config, model.params["layers"])
    assert wide_error(model.config, model.params | {"layers": layers}, expected) > 1000 * TOLERANCE


@pytest.mark.network(1)
@pytest.mark.parametrize("case", [CASE, "qwen3_5_multimodal", *EXPERTS, "lfm2_released", "lfm2_moe_corrected"])
def test_greedy_generation(case):
    model, expected = loaded(case)
    tokens = expected["cached_tokens"][:1, : expected["prompt_lengths"].min()]
    prompt, new = tokens.shape[1], len(expected["greedy_tokens"])
    cache = kv_cache.empty_cache(model.config, 1, prompt + new)
    result = forward_text(model.params, model.config, tokens)
    for _ in range(new):
        cache = write_cache(cache, result.cache, np.array([tokens.shape[1] - result.logits.shape[1]]))
        tokens = np.concatenate([tokens, np.asarray(result.logits)[:, -1:].argmax(-1).astype(np.int32)], axis=1)
        seen = np.arange(cache.num_slots) < tokens.shape[1] - 1
        result = forward(
            model.params,
            model.config,
            tokens[:, -1:],
            positions=np.full((1, 1), tokens.shape[1] - 1),
            mask=decoder.causal_mask(1, 1),
            sources=[kv_cache.CachedKV(cache, seen[None, None])],
        )
    np.testing.assert_array_equal(tokens[0, prompt:], expected["greedy_tokens"])


@pytest.mark.parametrize("case", [CASE, "qwen3_5_multimodal"])
def test_layers_that_predict_further_tokens_are_left_unread(case, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / case / name, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    further = {
        "mtp.fc.weight": np.zeros((3, 6), np.float32),
        "mtp.layers.0.mlp.up_proj.weight": np.zeros((2, 3), np.float32),
    }
    save_file(tensors | further, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = load_directory(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, found.params, loaded(case)[0].params)
    save_file(
        tensors | {"further.weight": further["mtp.fc.weight"]},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(InputError, match=r"has tensor 'further\.weight', which this network does not compute with"):
        load_directory(tmp_path)


@pytest.mark.network
def test_layer_by_layer_the_inputs_are_those_of_the_whole_network():
    model, expected = loaded(CASE)
    tokens = expected["tokens_7"]
    hear = lambda params: (
        decoder.forward_text(params, model.config, tokens, keep_activations=sum_of_squares).activations
    )
    heard = jax.jit(hear)(model.params)
    found = input_squares(open_network(GOLDEN / CASE), tokens)
    layers = {"linear_in": 6, "linear_out": 6, "qkv": 2, "o": 2, "gate_up": 8, "down": 8}
    assert {name: len(squares) for name, squares in found.items()} == layers
    for name, squares in found.items():
        np.testing.assert_allclose(squares, heard[name], rtol=1e-4, atol=1e-4 * float(squares.max()))


#: What Qwen/Qwen3.5-27B states of its decoder.
RELEASED = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        **{"model_type": "qwen3_5_text", "num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 17408},
        **{"num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_conv_kernel_dim": 4},
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128, "full_attention_interval": 4},
        **{"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6},
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "rope_parameters": {
            **{"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
            **{"rope_theta": 10_000_000, "rope_type": "default"},
        },
    },
    "tie_word_embeddings": False,
    "vision_config": {"depth": 27, "hidden_size": 1152, "model_type": "qwen3_5"},
}


def test_a_release_is_read_as_the_catalog_has_it():
    config = decoder_config(RELEASED)
    assert architecture_of(config) == catalog.architecture("qwen3.5-27b")
    assert (config.rope_theta, config.rotary_dim, config.norm, config.attention_gate) == (1e7, 64, "shifted_rms", True)
    assert len(config.runs) == 32
    # 2048 keys, 2 x 48 sums of decay, 6144 updates and 10,240 projections in 32 bits, and room for values of attention.
    assert 4 * (config.cached_shape.elements - 4 * 256) == 4 * (2048 + 96 + 6144 + 10_240) == 74_112
    odd = RELEASED | {"text_config": RELEASED["text_config"] | {"layer_types": ["linear_attention"] * 64}}
    with pytest.raises(ValueError, match="all 64 layers have linear attention; one at least must attend to a cache"):
        decoder_config(odd)
