"""Releases are read in the form that their config.json states: bits by kind of weight, what is left out, cache, kernels."""

import json

import pytest
from huggingface_cases import SMALL

from hwmodels import catalog, parameters

DENSE = ("q", "k", "v", "o", "gate", "up", "down")
FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
QWEN3_32B = {
    **{"model_type": "qwen3", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 25600, "vocab_size": 151936},
    **{"num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "tie_word_embeddings": False},
}
GPT_OSS_120B = {"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "num_local_experts": 128}
GPT_OSS_FORM = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        *("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
    ],
}


def group(bits, kind="int", *, inputs=None, targets=("Linear",), **weights):
    return {
        "targets": list(targets),
        "weights": {"num_bits": bits, "type": kind, **weights},
        "input_activations": None if inputs is None else {"num_bits": inputs, "type": kind},
    }


def compressed(*groups, **more):
    named = {f"group_{place}": one for place, one in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, "ignore": ["lm_head"], **more}


def read(quantization, raw=SMALL, **beside):
    return catalog.read_config(raw | {"quantization_config": quantization}, **beside)


# Bits worked by hand: elements, then what a group shares, divided by its size; hidden_size is 24.
@pytest.mark.parametrize(
    ("quantization", "bits", "kernels"),
    [
        (FP8_BLOCKS, 8 + 32 / 128**2, "fp8_block"),
        (FP8_BLOCKS | {"scale_fmt": "ue8m0", "weight_block_size": [1, 32]}, 8 + 8 / 32, "fp8_block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 8, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, 8 + 32 / 24, "fp8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 20 / 128, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8 + 24 / 24, None),
        ({"quant_method": "gptq", "bits": 3, "group_size": 64}, 3 + 19 / 64, None),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, 4 + 20 / 64, None),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 32}, 2 + 18 / 32, None),
        (compressed(group(4, group_size=128, strategy="group", symmetric=True)), 4 + 16 / 128, None),
        (compressed(group(4, group_size=32, strategy="group", symmetric=False)), 4 + 20 / 32, None),
        (compressed(group(8, strategy="channel", inputs=8)), 8 + 16 / 24, "sq"),
        (compressed(group(8, "float", strategy="tensor", inputs=8)), 8, "fp8"),
        (compressed(group(8, "float", strategy="channel", inputs=8)), 8 + 16 / 24, "fp8"),
        (compressed(group(8, "float", strategy="block", block_structure=[128, 128])), 8 + 32 / 128**2, "fp8_block"),
        (compressed(group(4, "float", group_size=16, inputs=4)), 4.5, "nvfp4"),
        (compressed(group(4, "float", group_size=16)), 4.5, None),
        (compressed(group(4, "float", group_size=32), format="mxfp4-pack-quantized"), 4.25, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, 8, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}, 4.5, "nvfp4"),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128, "exclude_modules": ["lm_head"]}, 4 + 16 / 128, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 4.5, None),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            4 + (8 + 32 / 256) / 64,
            None,
        ),
        ({"load_in_8bit": True, "llm_int8_threshold": 6.0}, 8 + 32 / 24, None),
    ],
)
def test_bits_of_a_form(quantization, bits, kernels):
    form = read(quantization).stored
    assert form is not None
    assert {kind: form.weight_bits[kind] for kind in DENSE} == pytest.approx(dict.fromkeys(DENSE, bits))
    assert {form.weight_bits[kind] for kind in ("embed", "lm_head", "norm", "router")} == {16.0}
    assert form.kernels == kernels


@pytest.mark.parametrize(
    "left_out",
    [
        {"modules_to_not_convert": ["self_attn", "model.layers.2"]},
        {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.2.mlp"]},
        {"ignored_layers": [f"model.layers.{n}.self_attn.{m}_proj" for n in range(5) for m in "qkvo"] + ["layers.2"]},
        {"ignore": [r"re:.*self_attn.*", "re:model.layers.2[.].*"]},
    ],
)
def test_what_is_left_out_keeps_16_bits(left_out):
    form = read({"quant_method": "fp8"} | left_out).stored
    assert form is not None
    assert {form.weight_bits[kind] for kind in ("q", "k", "v", "o")} == {16.0}
    # One layer of five.
    assert form.weight_bits["down"] == pytest.approx((4 * 8 + 16) / 5)


def test_modules_may_have_forms_of_their_own():
    layers = {"model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    layers |= {f"model.layers.{n}.self_attn": {"quant_algo": "FP8"} for n in range(5)}
    form = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}).stored
    assert form is not None
    assert (form.weight_bits["q"], form.weight_bits["up"]) == (8.0, 16.0)
    assert form.weight_bits["down"] == pytest.approx((4.5 + 4 * 16) / 5)
    assert form.name == "FP8 and NVFP4"
    two = compressed(group(8, "float"), group(4, "float", group_size=16, targets=["re:.*mlp.*"]))
    assert {kind: read(two).stored.weight_bits[kind] for kind in ("q", "up")} == {"q": 8.0, "up": 4.5}


@pytest.mark.parametrize(
    ("stated", "bits"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 8.0),
        ({"kv_cache_scheme": "FP8"}, 8.0),
        ({"kv_cache_quant_algo": "NVFP4"}, 4.5),
        ({"kv_cache_quant_algo": None}, None),
    ],
)
def test_keys_and_values_have_the_form_that_is_stated(stated, bits):
    form = read({"quant_method": "modelopt", "quant_algo": "FP8"} | stated).stored
    assert form is not None
    assert form.kv_bits == bits


def test_the_file_of_modelopt_beside_a_config_counts(tmp_path):
    own = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(own))
    form = catalog.read_config_file(tmp_path).stored
    assert form is not None
    assert (form.weight_bits["q"], form.weight_bits["lm_head"], form.kv_bits) == (4.5, 16.0, 8.0)


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({"quant_method": "aqlm", "nbits_per_codebook": 16}, "quant_method 'aqlm'"),
        ({"bits": 4}, "quant_method None"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo 'FP3'"),
        ({"quant_method": "gptq", "bits": "four"}, "bits 'four'"),
        ({"quant_method": "mxfp4"}, "names no matrix of this network"),
        ([1], r"\[1\]"),
    ],
)
def test_a_form_that_is_not_modelled_is_named_first(quantization, named):
    reading = read(quantization)
    assert reading.stored is None
    assert reading.notes[0].startswith("weights are priced in 16 bits: ")
    assert named.replace("\\", "") in reading.notes[0]


@pytest.mark.parametrize("off", [None, {}, {"quant_method": "bitsandbytes", "load_in_4bit": False}])
def test_no_quantization_is_no_form(off):
    reading = read(off)
    assert (reading.stored, reading.notes) == (None, ())


def held_gb(raw, quantization):
    reading = read(quantization, raw)
    counts = parameters(reading.architecture)
    return sum(float(counts[kind]) * reading.stored.weight_bits[kind] for kind in counts) / 8e9


def test_releases_are_as_large_as_their_files():
    # Files of Qwen/Qwen3-32B-FP8: 34.4 GB; of openai/gpt-oss-120b: 65.2 GB.
    assert held_gb(QWEN3_32B, FP8_BLOCKS) == pytest.approx(34.4, rel=0.01)
    assert held_gb(GPT_OSS_120B, GPT_OSS_FORM) == pytest.approx(65.2, rel=0.01)
