"""Rules of an architecture's fields, and the catalog's entries against the networks that transformers builds."""

import dataclasses
import json
from pathlib import Path

import pytest

from hwmodels import Architecture, catalog, parameters
from hwmodels.catalog.architecture_entries import ARCHITECTURE_RULES, checked_architecture, parse_architecture
from hwmodels.numerics.fields import FLAG

CASES = json.loads((Path(__file__).parents[1] / "data" / "parameter_counts.json").read_text(encoding="utf-8"))["cases"]
#: Trained in this repository, so transformers has no configuration of it.
OWN = {"embedded", "embedded-moe", "embedded-small"}

#: Entries of networks whose config.json was not seen, as their sources say.
ASSUMED = {
    name
    for name in catalog.architecture_names()
    if any(source.startswith("assumed") for source in catalog.architecture_sources(name).values())
}


def total(architecture):
    return float(sum(parameters(architecture).values()))


def test_every_field_has_a_rule():
    assert set(ARCHITECTURE_RULES) == {field.name for field in dataclasses.fields(Architecture)}


@pytest.mark.parametrize("name", sorted(set(catalog.architecture_names()) - OWN - ASSUMED))
def test_entries_are_what_their_config_json_says(name, x64):
    architecture = catalog.architecture(name)
    assert architecture == catalog.architecture_from_config(CASES[name]["config"])
    assert round(total(architecture)) == CASES[name]["counts"]["total"]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-3.2-1b", 1.24e9),
        ("llama-3.2-3b", 3.21e9),
        ("llama-2-13b", 13.0e9),
        ("vicuna-7b", 6.74e9),
        ("qwen2.5-1.5b", 1.54e9),
        ("qwen2.5-3b", 3.09e9),
        ("qwen2.5-7b", 7.61e9),
        ("qwen3-30b-a3b", 30.5e9),
        ("deepseek-v2-lite", 15.7e9),
        ("gpt-oss-20b", 20.9e9),
        ("opt-13b", 12.85e9),
    ],
)
def test_totals_are_the_published_ones(name, published, x64):
    assert total(catalog.architecture(name)) == pytest.approx(published, rel=5e-3)


#: Numbers that safetensors files of these releases hold, as the Hub counts them; a witness apart from transformers.
HUB = {
    "llama-3.1-405b": 405_853_388_800,
    "mistral-small-24b": 23_572_403_200,
    "gpt-oss-120b": 116_829_156_672,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "gemma-3-1b": 999_885_952,
    "phi-4": 14_659_507_200,
    "olmo-2-0425-1b": 1_484_916_736,
    "olmo-2-1124-7b": 7_298_617_344,
    "olmo-2-1124-13b": 13_716_198_400,
    "olmo-2-0325-32b": 32_234_279_936,
    "smollm3-3b": 3_075_098_624,
    "granite-3.3-2b": 2_533_539_840,
    "granite-3.3-8b": 8_170_864_640,
    "granite-3.1-1b-a400m": 1_334_628_352,
    "granite-3.1-3b-a800m": 3_298_793_472,
}


@pytest.mark.parametrize("name", HUB)
def test_totals_are_those_of_released_checkpoints(name, x64):
    assert round(total(catalog.architecture(name))) == HUB[name]


@pytest.mark.parametrize(
    ("name", "stored"),
    [("gemma-3-4b", 4_300_079_472), ("gemma-3-12b", 12_187_325_040), ("gemma-3-27b", 27_432_406_640)],
)
def test_checkpoints_of_gemma_are_the_entry_and_what_sees(name, stored, x64):
    # SigLIP: patches of 14 * 14 in an image of 896 * 896; 27 layers of width 1152 with biases everywhere, 4304 within; a
    # norm at the end. The projector has a norm and a matrix to the decoder's width.
    gemma, width, inner = catalog.architecture(name), 1152, 4304
    layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
    tower = (3 * 14 * 14 + 1) * width + (896 // 14) ** 2 * width + 27 * layer + 2 * width
    projector = width + width * int(gemma.hidden_size)
    assert round(total(gemma)) + tower + projector == stored


def test_opt_by_hand(x64):
    # 13b. Per layer 4 * 5120^2 of attention, 2 * 5120 * 20480 of the feed-forward network; vectors: two norms of scale
    # and bias, four biases of attention, 20480 + 5120 of the feed-forward network. Then 50272 tokens and 2050 positions.
    matrices = 4 * 5120**2 + 2 * 5120 * 20480
    vectors = 4 * 5120 + 4 * 5120 + 20480 + 5120
    opt = catalog.architecture("opt-13b")
    assert round(total(opt)) == 40 * (matrices + vectors) + (50272 + 2050) * 5120 + 2 * 5120


BASE = {
    "num_layers": 5.0,
    "hidden_size": 24.0,
    "intermediate_size": 52.0,
    "num_heads": 6.0,
    "num_kv_heads": 3.0,
    "head_dim": 7.0,
    "vocab_size": 97.0,
    "tied_embeddings": 0.0,
    "qk_norm": 0.0,
}
MOE = {"num_moe_layers": 4.0, "num_experts": 9.0, "experts_per_token": 2.0, "expert_intermediate_size": 17.0}
HEADS = {"linear_key_heads": 2.0, "linear_value_heads": 6.0, "linear_key_dim": 5.0, "linear_value_dim": 8.0}
LINEAR = HEADS | {"num_linear_layers": 3.0, "linear_conv_tokens": 4.0}
WINDOWS = {"num_window_layers": 3.0, "window_tokens": 29.0}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_kv_heads": 4.0}, "num_heads is 6 and num_kv_heads is 4; key-value heads must divide heads"),
        ({"num_kv_heads": 12.0}, "num_kv_heads is 12 and num_heads is 6; num_kv_heads must be at most num_heads"),
        (
            MOE | {"experts_per_token": 10.0},
            "experts_per_token is 10 and num_experts is 9; experts_per_token must be at",
        ),
        (MOE | {"num_moe_layers": 6.0}, "num_moe_layers is 6 and num_layers is 5; num_moe_layers must be at most"),
        (MOE | {"expert_intermediate_size": 0.0}, "num_moe_layers is 4 and expert_intermediate_size is 0; both must"),
        ({"num_experts": 9.0, "experts_per_token": 2.0}, "num_moe_layers is 0 and num_experts is 9; both must be 0"),
        ({"shared_intermediate_size": 8.0}, "shared_intermediate_size above 0 needs num_moe_layers above 0"),
        (MOE | {"intermediate_size": 0.0}, "layers without experts need intermediate_size above 0"),
        ({"kv_lora_rank": 8.0, "rope_head_dim": 2.0}, "kv_lora_rank above 0 needs v_head_dim above 0"),
        ({"q_lora_rank": 8.0}, "q_lora_rank above 0 needs kv_lora_rank above 0"),
        (WINDOWS | {"num_window_layers": 6.0}, "num_window_layers is 6 and num_layers is 5"),
        ({"num_window_layers": 3.0}, "num_window_layers is 3 and window_tokens is 0; both must be 0"),
        (LINEAR | {"num_linear_layers": 5.0}, "num_layers is 5; one layer at least must attend to a cache"),
        (LINEAR | {"linear_conv_tokens": 0.0}, "num_linear_layers is 3 and linear_conv_tokens is 0; both must be 0"),
        (
            LINEAR | {"linear_key_heads": 4.0},
            "linear_value_heads is 6 and linear_key_heads is 4; key heads must divide",
        ),
        (LINEAR | WINDOWS, "num_window_layers is 3 and num_linear_layers is 3; together they must be at most"),
        ({"sink_tokens": 4.0}, "sink_tokens above 0 needs num_window_layers above 0"),
    ],
)
def test_sizes_that_do_not_fit_together(more, message):
    with pytest.raises(catalog.EntryError, match=message) as caught:
        checked_architecture(BASE | more, where="x.toml")
    assert str(caught.value).startswith("x.toml: ")
    assert "\n" not in str(caught.value)


def entry(values):
    flags = {name for name, rule in ARCHITECTURE_RULES.items() if rule is FLAG}
    lines = ['title = "A network"']
    for name, value in values.items():
        text = str(bool(value)).lower() if name in flags else repr(value)
        lines.append(f'{name} = {{ value = {text}, source = "a test" }}')
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({name: value for name, value in BASE.items() if name != "head_dim"}, "head_dim is missing"),
        (BASE | {"num_experts": 2.5}, "num_experts is 2.5; it must be a whole number >= 0"),
        (BASE | {"vectors_per_layer": -1.0}, "vectors_per_layer is -1.0; it must be a number >= 0"),
        (BASE | {"num_layers": 0.0}, "num_layers is 0.0; it must be a positive whole number"),
        (BASE | {"expert_size": 2.0}, "unknown key 'expert_size'"),
        (BASE | {"sink_tokens": 4.0}, "sink_tokens above 0 needs"),
    ],
)
def test_entries_that_are_none(values, message):
    with pytest.raises(catalog.EntryError, match=f"^x.toml: .*{message}"):
        parse_architecture(entry(values), where="x.toml")
