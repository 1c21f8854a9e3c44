"""What config.json may say in families with latent attention and in gpt-oss, and how their tensors lie in files."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, open_checkpoint, pack
from jaxspec.models.config import decoder_config
from jaxspec.models.decoder import forward_text
from jaxspec.models.hf_export import config_json, save_directory
from jaxspec.models.hf_load import load_container, load_directory
from jaxspec.models.layerwise import open_network
from jaxspec.models.rope import YarnScaling

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"


def settings(name):
    return json.loads((GOLDEN / name / "config.json").read_text())


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "deepseek_v2_grouped",
            {"topk_method": "noaux_tc"},
            "topk_method = 'noaux_tc' is not modelled; allowed are 'greedy'",
        ),
        (
            "deepseek_v2_grouped",
            {"norm_topk_prob": True},
            "with norm_topk_prob = True is not modelled; allowed is False",
        ),
        ("deepseek_v2_grouped", {"scoring_func": "sigmoid"}, "with scoring_func = 'sigmoid' is not modelled"),
        ("deepseek_v2_grouped", {"moe_layer_freq": 2}, "with moe_layer_freq = 2 is not modelled"),
        ("deepseek_v2_grouped", {"mlp_bias": True}, "with mlp_bias = True is not modelled"),
        ("deepseek_v2_grouped", {"num_key_value_heads": 1}, "num_key_value_heads is 1; in this family it is 5, always"),
        ("deepseek_v2_grouped", {"head_dim": 12}, "head_dim is 12; in this family it is 8, always"),
        ("deepseek_v2_grouped", {"kv_lora_rank": None}, "kv_lora_rank is None; it must be a whole number"),
        ("deepseek_v2_grouped", {"q_lora_rank": 0}, "q_lora_rank is 0; it must be a whole number from 1"),
        ("deepseek_v2_grouped", {"qk_rope_head_dim": 5}, "rope_head_dim is 5; rotary embeddings need an even one"),
        ("deepseek_v2_grouped", {"n_group": 4}, "4 groups came; they must divide the 9 experts"),
        (
            "deepseek_v2_grouped",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "mscale_all_dim": 1.0}},
            "mscale_all_dim beside rope scaling 'linear' is not modelled",
        ),
        ("deepseek_v3_grouped", {"topk_method": "greedy"}, "with topk_method = 'greedy' is not modelled"),
        ("deepseek_v3_grouped", {"rope_interleave": False}, "with rope_interleave = False is not modelled"),
        ("glm4_moe_lite_latent", {"first_k_dense_replace": 2}, "with first_k_dense_replace = 2 is not modelled"),
        ("gpt_oss_sinks", {"swiglu_alpha": 1.0}, "with swiglu_alpha = 1.0 is not modelled; allowed is 1.702"),
        ("gpt_oss_sinks", {"hidden_act": "gelu"}, "with hidden_act = 'gelu' is not modelled"),
        ("gpt_oss_sinks", {"swiglu_limit": 0.0}, "swiglu_limit is 0.0; it must be a finite number above 0"),
        ("gpt_oss_sinks", {"quantization_config": {"quant_method": "fp8"}}, "allowed is none, or quant_method 'mxfp4'"),
        ("deepseek_v2_whole", {"quantization_config": {"quant_method": "mxfp4"}}, "read are compressed-tensors"),
    ],
)
def test_what_is_not_modelled_is_named(name, changes, message):
    with pytest.raises((NotImplementedError, ValueError), match=message):
        decoder_config(settings(name) | changes)


def test_yarn_moves_the_scale_of_the_scores():
    # (0.1 * 0.6 * ln 8 + 1)^2 over the root of 6 + 8 elements.
    config = decoder_config(settings("deepseek_v2_grouped"))
    assert config.score_scale == pytest.approx((0.06 * np.log(8.0) + 1) ** 2 / np.sqrt(14), rel=1e-12)
    assert decoder_config(settings("deepseek_v2_whole")).score_scale is None


def test_groups_count_where_the_method_says_so():
    raw = settings("deepseek_v2_grouped")
    grouped, greedy = (decoder_config(raw | changes).experts for changes in ({}, {"topk_method": "greedy"}))
    assert grouped is not None
    assert greedy is not None
    assert (grouped.groups, greedy.groups) == (3, 1)


def test_gpt_oss_scales_its_rotation_unless_told_otherwise():
    raw = {key: value for key, value in settings("gpt_oss_sinks").items() if key != "rope_parameters"}
    factor = 0.1 * np.log(32.0) + 1
    scaling = YarnScaling(32.0, original_max_position_embeddings=4096, attention_factor=factor, truncate=False)
    assert decoder_config(raw).rope_scaling == scaling
    assert decoder_config(raw | {"rope_parameters": {"rope_type": "default"}}).rope_scaling is None
    plain = decoder_config(raw | {"rope_scaling": {"rope_type": "default"}, "rope_theta": 100.0})
    assert (plain.rope_scaling, plain.rope_theta) == (None, 100.0)
    assert decoder_config(config_json(plain, max_positions=64)) == plain


def test_rows_lie_head_by_head_and_in_turn():
    model, stored = (
        load_directory(GOLDEN / "deepseek_v2_whole"),
        load_file(GOLDEN / "deepseek_v2_whole" / "model.safetensors"),
    )
    both = stored["model.layers.1.self_attn.kv_b_proj.weight"].reshape(4, 6 + 8, 12)  # per head: keys, then values
    np.testing.assert_array_equal(np.asarray(model.params["layers"]["k_up"])[1].reshape(4, 6, 12), both[:, :6])
    np.testing.assert_array_equal(np.asarray(model.params["layers"]["v_up"])[1].reshape(4, 8, 12), both[:, 6:])
    model, stored = load_directory(GOLDEN / "gpt_oss_sinks"), load_file(GOLDEN / "gpt_oss_sinks" / "model.safetensors")
    fused = stored["model.layers.2.mlp.experts.gate_up_proj"]  # (expert, input, output)
    assert fused.shape == (5, 36, 2 * 14)
    for place, kind in enumerate(("gate", "up")):
        found = np.asarray(model.params["layers"][f"expert_{kind}"])[2]
        np.testing.assert_array_equal(found, fused[:, :, place::2].swapaxes(1, 2))
        bias = stored["model.layers.2.mlp.experts.gate_up_proj_bias"][:, place::2]
        np.testing.assert_array_equal(np.asarray(model.params["layers"][f"expert_{kind}_bias"])[2], bias)


@pytest.mark.parametrize("name", ["deepseek_v2_grouped", "gpt_oss_sinks"])
def test_what_is_written_is_what_was_read(name, tmp_path):
    model = load_directory(GOLDEN / name)
    save_directory(model.params, model.config, tmp_path, max_positions=512, family=model.family)
    theirs, ours = load_file(GOLDEN / name / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert theirs.keys() == ours.keys()
    for tensor, value in theirs.items():
        np.testing.assert_array_equal(value, ours[tensor])
    assert load_directory(tmp_path).config == model.config
    # Under the names that other tools read.
    written, stated = json.loads((tmp_path / "config.json").read_text()), settings(name)
    counts = {key: value for key, value in stated.items() if "experts" in key}
    assert {key: written[key] for key in counts} == counts


@pytest.mark.network
def test_packed_experts_are_the_same_network_however_they_are_opened(tmp_path):
    # Whole, in its codes, streamed, layer by layer, from a container, and written as 16 bits.
    source = GOLDEN / "gpt_oss_packed"
    model = load_directory(source, codes=False)
    assert {str(model.params["layers"][name].dtype) for name in ("expert_gate", "expert_down")} == {"bfloat16"}
    tokens = np.random.default_rng(1).integers(39, size=(2, 6))
    run = jax.jit(forward_text, static_argnums=1)
    logits = run(model.params, model.config, tokens).logits
    coded = load_directory(source)
    np.testing.assert_allclose(run(coded.params, coded.config, tokens).logits, logits, atol=2e-5)
    streamed = load_directory(source, stream=True)
    np.testing.assert_array_equal(run(streamed.params, streamed.config, tokens).logits, logits)
    layers = list(open_network(source).layers())
    for number, layer in enumerate(layers):
        for name, value in layer.items():
            np.testing.assert_array_equal(value, model.params["layers"][name][number])
    pack(open_checkpoint(source), tmp_path / f"all{SUFFIX}", "huffllm")
    opened = load_container(tmp_path / f"all{SUFFIX}")
    jax.tree.map(np.testing.assert_array_equal, opened.params, model.params)
    save_directory(model.params, model.config, tmp_path / "wide", max_positions=64, family=model.family)
    wide = load_directory(tmp_path / "wide")
    assert wide.config == model.config
    jax.tree.map(np.testing.assert_array_equal, wide.params, model.params)


def test_a_damaged_pair_is_refused_in_one_line(tmp_path):
    shutil.copytree(GOLDEN / "gpt_oss_packed", tmp_path / "copy")
    tensors = load_file(tmp_path / "copy" / "model.safetensors")
    del tensors["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(tensors, tmp_path / "copy" / "model.safetensors")
    with pytest.raises(
        InputError, match=r"has tensor 'model\.layers\.1\.mlp\.experts\.down_proj_blocks' without"
    ) as error:
        load_directory(tmp_path / "copy", dtype=jnp.float32)
    assert len(str(error.value).splitlines()) == 1
