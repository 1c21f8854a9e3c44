import dataclasses
import json
import math
from pathlib import Path

import pytest
from window_cases import WINDOWS

from hwmodels import catalog
from hwmodels.networks import runnable_families
from hwmodels.networks.running import ACTIVATION_NAMES
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import DecoderConfig, decoder_config, family_of
from jaxspec.models.hf_export import config_json, family_for
from jaxspec.models.norms import ACTIVATIONS
from jaxspec.models.rope import Llama3Scaling, Rope

SIZES = {
    "vocab_size": 97,
    "hidden_size": 192,
    "intermediate_size": 50,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 4.0}


def read(family, **changes):
    return decoder_config(SIZES | {"model_type": family} | changes)


def test_llama_defaults_of_absent_keys():
    assert read("llama") == DecoderConfig(
        vocab_size=97,
        hidden_size=192,
        intermediate_size=50,
        num_layers=3,
        num_heads=16,
        num_kv_heads=16,
        head_dim=12,
        rope_theta=10_000.0,
        norm_eps=1e-6,
    )


def test_qwen3_defaults_of_absent_keys():
    config = read("qwen3", num_attention_heads=64)
    assert (config.num_kv_heads, config.head_dim, config.qk_norm, config.tie_embeddings) == (32, 128, True, False)
    assert (config.rope_theta, config.norm_eps) == (10_000.0, 1e-6)


GRANITE_4 = {"num_local_experts": 0, "position_embedding_type": "rope"}


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_null_heads_mean_one_kv_head_per_query_head_and_null_head_dim_an_even_share(family):
    config = read(family, num_key_value_heads=None, head_dim=None)
    assert (config.num_kv_heads, config.head_dim) == (16, 12)


@pytest.mark.parametrize(
    ("changes", "theta", "original"),
    [
        ({"rope_theta": 7e5}, 7e5, None),
        ({"rope_theta": 7e5, "rope_scaling": None}, 7e5, None),
        ({"rope_theta": 7e5, "rope_scaling": {"rope_type": "default"}}, 7e5, None),
        ({"rope_parameters": {"rope_theta": 3e5, "rope_type": "default"}}, 3e5, None),
        ({"rope_parameters": {"rope_theta": 3e5}, "rope_theta": 7e5}, 3e5, None),
        ({"rope_theta": 7e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 500}}, 7e5, 500),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 3e5, "original_max_position_embeddings": 500}}, 3e5, 500),
        ({"rope_scaling": {"type": "llama3"} | {k: LLAMA3[k] for k in LLAMA3 if k != "rope_type"}}, 1e4, 2048),
        ({"rope_scaling": LLAMA3, "max_position_embeddings": 700}, 1e4, 700),
        (
            {
                "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 500},
                "original_max_position_embeddings": 600,
            },
            1e4,
            600,
        ),
        # Both spellings: the older one counts.
        ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 3e5}}, 1e4, 2048),
    ],
)
def test_both_spellings_of_the_rotary_settings(changes, theta, original):
    config = read("llama", **changes)
    assert config.rope_theta == theta
    assert config.rope_scaling == (None if original is None else Llama3Scaling(32.0, 1.5, 4.0, original))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "qwen9"},
            "'qwen9' is not modelled; known: apertus, arcee, .*, deepseek_v2, .*, kimi_k2, kimi_k25",
        ),
        (
            {"model_type": "falcon"},
            r"'falcon' is priced \(predict --architecture takes .*\) but does not run; those that",
        ),
        ({"model_type": ["llama"]}, "is not modelled"),
        ({"hidden_act": "laplace"}, "hidden_act = 'laplace'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 3}, "is ambiguous"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ({"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 1e4}}, "rotary settings"),
        ({"model_type": "smollm3", "use_sliding_window": True}, "use_sliding_window = True"),
        ({"model_type": "opt", "ffn_dim": 50, "do_layer_norm_before": False}, "do_layer_norm_before = False"),
        ({"model_type": "opt", "ffn_dim": 50, "word_embed_proj_dim": 7}, "word_embed_proj_dim = 7"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        (
            {"model_type": "qwen9_next", "linear_conv_kernel_dim": 4},
            r"'qwen9_next' is not modelled \(linear_conv_kernel_dim is 4: linear attention\); known: ",
        ),
        (
            {"model_type": "deepseek_v4", "text_config": {"index_topk": 64}},
            r"'deepseek_v4' is not modelled \(index_topk is 64: attention to selected tokens\); known: ",
        ),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
            "llama with quant_method 'bitsandbytes' in quantization_config is not modelled: quant_method 'bitsandbytes' with "
            "load_in_8bit True; read are compressed-tensors, .*: take a checkpoint in 16 bits",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}},
            "quant_method 'fp8' in quantization_config is not modelled: .* fmt 'e5m2'",
        ),
        ({"model_type": "granitemoehybrid", **GRANITE_4}, "layer_types is missing: all layers are state-space"),
        (
            {"model_type": "granitemoehybrid", **GRANITE_4, "layer_types": ["attention", "mamba"]},
            r"layer_types \['atten",
        ),
        (
            {"model_type": "granitemoehybrid", **GRANITE_4, "num_local_experts": 8},
            "num_local_experts = 8 is not modelled",
        ),
        ({"model_type": "minimax_m2", "scoring_func": "softmax"}, "scoring_func = 'softmax' is not modelled"),
        ({"model_type": "olmo3", "rope_theta": 1e4}, "olmo3 with rope_theta = 10000.0 is not modelled; allowed is 5"),
        ({"model_type": "cohere2", "use_parallel_block": False}, "cohere2 with use_parallel_block = False is not"),
        ({"model_type": "cohere2", "layer_switch": 3}, "cohere2 with layer_switch = 3 is not modelled; allowed is 4"),
        ({"model_type": "apertus", "hidden_act": "silu"}, "hidden_act = 'silu' is not modelled; allowed is 'xielu'"),
        ({"model_type": "hunyuan_v1_moe", "use_cla": True}, "hunyuan_v1_moe with use_cla = True is not modelled"),
        ({"model_type": "hunyuan_v1_moe", "num_shared_expert": 2}, "num_shared_expert = 2 is not modelled"),
        ({"model_type": "lfm2", "conv_bias": True}, "lfm2 with conv_bias = True is not modelled; allowed is False"),
        ({"model_type": "lfm2", "conv_dim": 7}, "lfm2 with conv_dim = 7 is not modelled; allowed is 192"),
        (
            {"model_type": "ernie4_5_moe", "use_bias": True},
            "ernie4_5_moe with use_bias = True is not modelled; allowed",
        ),
        ({"model_type": "olmoe", "clip_qkv": 8.0}, "olmoe with clip_qkv = 8.0 is not modelled; allowed is null"),
        ({"is_causal": False}, "is_causal = False is not modelled; allowed is true"),
        (
            {"model_type": "granite", "is_encoder_decoder": True},
            "is_encoder_decoder = True is not modelled; allowed is false",
        ),
        ({"model_type": "olmo2", "add_cross_attention": True}, "add_cross_attention = True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (
            {"rope_scaling": {"type": "axial", "factor": 2.0}},
            "'axial' is not modelled; known: default, dynamic, linear",
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "per layer type"),
    ],
)
def test_what_is_not_modelled_is_named(changes, message):
    with pytest.raises(NotImplementedError, match=message):
        read("llama", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "vocab_size is None; it must be a whole number from 1 to"),
        ({"hidden_size": 192.0}, r"hidden_size is 192\.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"intermediate_size": "50"}, "intermediate_size is '50'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        (
            {"num_attention_heads": 193},
            "hidden_size is 192, which 193 heads do not divide; it must be a multiple of them, or head_dim stated",
        ),
        ({"num_key_value_heads": 3}, "16 query heads cannot share 3 KV heads"),
        ({"head_dim": 11}, "head_dim is 11; rotary embeddings need an even one"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is None; it must be true or false"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; it must be a finite number above 0"),
        ({"rope_theta": -1}, "rope_theta is -1"),
        ({"rope_theta": 10**400}, "rope_theta is 10"),
        ({"rope_scaling": "llama3"}, "they must be an object"),
        ({"rope_scaling": LLAMA3 | {"factor": None}}, "factor is None"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "the second must be larger"),
    ],
)
def test_what_makes_no_sense_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        read("llama", **changes)


def test_activations_that_files_name_are_those_that_are_computed():
    assert set(ACTIVATION_NAMES.values()) == set(ACTIVATIONS)


def test_layers_that_predict_further_tokens_are_noted_and_left_out():
    raw = FILES["deepseek_v3_grouped"] | {"num_nextn_predict_layers": 1}
    assert sum("further tokens" in note for note in catalog.read_config(raw).notes) == 1


def test_neutral_keys_are_read_over():
    neutral = {
        "layer_types": ["full_attention"] * 3,
        "quantization_config": None,
        "partial_rotary_factor": 1.0,
        "sliding_window": 4096,
        "pretraining_tp": 1,
        "torch_dtype": "bfloat16",
    }
    assert read("llama", **neutral) == read("llama")


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_transformers_heeds_only_in_its_cache_is_refused(name):
    family, settings, whole = WINDOWS[name]
    settings = settings | {"num_key_value_heads": 4}
    if whole:
        assert read(family, **settings) == read(family, num_key_value_heads=4)
    else:
        with pytest.raises(
            NotImplementedError, match=r"(sliding_window|chunk_size) = \d+ is ambiguous.*allowed is null"
        ):
            read(family, **settings)


@pytest.mark.parametrize("value", [True, "8", -1, 1.5, [8], {}])
def test_a_window_that_is_no_number_is_refused(value):
    with pytest.raises(NotImplementedError, match=r"sliding_window = .* is ambiguous"):
        read("llama", sliding_window=value)


GOLDEN = Path(__file__).parents[2] / "golden" / "hf"
FILES = {path.parent.name: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/config.json"))}
WEIRD = (None, True, "x", "", [], [1], {}, {"a": {}}, -1, 0, 1.5, 64.0, 1e-400, 10**400, float("nan"), float("inf"))


@pytest.mark.parametrize("name", FILES)
def test_any_value_of_any_key_is_read_or_refused_in_one_line(name):
    raw = FILES[name]
    rope = raw.get("rope_parameters") or {}
    nested, lines = [rope, *(value for value in rope.values() if isinstance(value, dict))], []
    for place in (raw, *nested):
        for key in [*place, "layer_types", "partial_rotary_factor", "truncate", "attention_factor", "mscale"]:
            was = place.get(key, "absent")
            for value in (*WEIRD, "absent"):
                place[key] = value
                if value == "absent":
                    del place[key]
                try:
                    decoder_config(raw)
                except (ValueError, NotImplementedError) as error:
                    lines.append(str(error))
            place[key] = was
            if was == "absent":
                del place[key]
    assert lines
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_written_and_read_back(name):
    config, family = decoder_config(FILES[name]), family_of(FILES[name])
    assert decoder_config(config_json(config, max_positions=31, family=family)) == config
    # Whatever family is found for it computes the same.
    assert decoder_config(config_json(config, max_positions=31)) == config
    assert catalog.architecture_from_config(FILES[name]) == architecture_of(config)
    assert list(runnable_families()).index(family_for(config).name) <= list(runnable_families()).index(family.name)


def read_golden(name, **changes):
    return decoder_config(FILES[name] | changes)


def test_layers_without_a_window_are_not_rotated_where_a_window_is_stated():
    found = read_golden("exaone4_windows")
    assert (found.windows, found.rotated) == ((6, 6, None, 6), (True, True, False, True))
    whole = read_golden("exaone4_windows", layer_types=["full_attention"] * 4)
    assert (set(whole.windows), set(whole.rotated)) == ({None}, {False})
    assert all(read_golden("exaone4_windows", layer_types=["full_attention"] * 4, sliding_window=None).rotated)


def test_rotary_settings_of_layers_with_windows():
    new = read_golden("gemma3_local")
    older = {"rope_parameters": None, "rope_theta": 50_000.0, "rope_local_base_freq": 300.0}
    assert read_golden("gemma3_local", **older, rope_scaling={"rope_type": "linear", "factor": 8.0}) == new
    assert [rope and rope.theta for rope in new.ropes] == [300.0, 50_000.0]
    assert new.windows == (6, 6, None, 6)
    assert read_golden("gemma3_local", rope_parameters=None).local_rope == Rope(10_000.0)
    # One rotation for all is one rotation.
    assert read_golden("gemma3_local", **older | {"rope_local_base_freq": 50_000.0}).local_rope is None


@pytest.mark.parametrize(
    ("stated", "rotated"),
    [
        ({}, (True, False)),
        ({"no_rope_layers": None, "no_rope_layer_interval": 4}, (True, True, True, False)),
        ({"no_rope_layers": [1, 1, 1, 1, 0]}, (True,)),
        ({"no_rope_layers": [0, 1, 1, 1]}, (False, True, True, True)),
    ],
)
def test_layers_without_rotation(stated, rotated):
    assert read_golden("smollm3_unrotated", **stated).rotated == rotated


def test_attention_factors_by_hand():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    scaling = lambda **more: read_golden("olmo2_yarn", rope_parameters=yarn | more).rope_scaling
    assert scaling().attention_factor == 0.1 * math.log(4) + 1
    assert scaling(attention_factor=0.7).attention_factor == 0.7
    assert scaling(mscale=2.0, mscale_all_dim=0.5).attention_factor == (0.2 * math.log(4) + 1) / (
        0.05 * math.log(4) + 1
    )
    assert scaling(factor=None) == scaling(factor=256 / 64)
    # 64 positions are four times the 16 of the training.
    assert read_golden("phi3_longrope").rope_scaling.attention_factor == math.sqrt(1 + math.log(4) / math.log(16))


def test_windows_by_layer():
    assert read_golden("qwen3_windows").windows == (None, 7, 7)
    assert read_golden("qwen3_windows", layer_types=None).windows == (None, 7, 7)
    assert read_golden("qwen3_windows", layer_types=None, max_window_layers=3).windows == (None,)
    assert read_golden("gemma2_capped", layer_types=None).windows == (5, None, 5)
    assert dataclasses.replace(read_golden("gemma2_capped"), num_layers=4, windows=(5, None, 5, None)).windows == (
        5,
        None,
    )
