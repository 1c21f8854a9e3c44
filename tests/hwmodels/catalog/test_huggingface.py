"""Architectures from config.json against the parameters of the networks that transformers builds from the same file."""

import json
import math
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import Architecture, catalog, parameters
from hwmodels.catalog.huggingface.families import FAMILIES

COUNTED = json.loads((Path(__file__).parents[1] / "data" / "parameter_counts.json").read_text(encoding="utf-8"))
CASES = COUNTED["cases"]
#: Group of tests/golden/make_parameter_counts.py -> our kinds.
GROUPS = {
    "embed": ("embed",),
    "attention": ("q", "k", "v", "o"),
    "ffn": ("gate", "up", "down"),
    "router": ("router",),
    "experts": ("expert_gate", "expert_up", "expert_down"),
    "shared": ("shared",),
    "lm_head": ("lm_head",),
    "norm": ("norm",),
}
LONGEST_MESSAGE = 1000

SMALL = {
    "model_type": "llama",
    "num_hidden_layers": 5,
    "hidden_size": 24,
    "intermediate_size": 52,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 97,
    "tie_word_embeddings": False,
}
UNKNOWN = SMALL | {"model_type": "lama9", "hidden_act": "silu", "rms_norm_eps": 1e-5}
EXPERTS = {"num_experts": 9, "num_experts_per_tok": 2, "moe_intermediate_size": 17}


def groups_of(architecture):
    stored = parameters(architecture)
    return {group: round(float(sum(stored[kind] for kind in kinds))) for group, kinds in GROUPS.items()}


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_networks(name, x64):
    counts = dict(CASES[name]["counts"])
    total, window_layers = counts.pop("total"), counts.pop("window_layers", None)
    architecture = catalog.architecture_from_config(CASES[name]["config"])
    groups = groups_of(architecture)
    assert groups == dict.fromkeys(GROUPS, 0) | counts
    assert sum(groups.values()) == total
    if window_layers is not None:
        assert architecture.num_window_layers == window_layers
    assert {type(leaf) for leaf in vars(architecture).values()} == {float}


def test_every_family_has_a_small_case_and_one_of_defaults():
    types = {name: case["config"]["model_type"] for name, case in CASES.items()}
    assert set(types.values()) == set(FAMILIES)
    for family in FAMILIES:
        assert f"{family} defaults" in CASES
        assert sum(model_type == family for model_type in types.values()) >= 2, family


def test_a_mixture_of_experts_by_hand():
    raw = (
        SMALL | EXPERTS | {"model_type": "qwen3_moe", "head_dim": 10, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    )
    raw |= {"use_sliding_window": True, "sliding_window": 29}
    # Layers 1 and 3 of 0 to 4 would have experts, 3 is listed as dense.
    assert catalog.architecture_from_config(raw) == Architecture(
        num_layers=5.0,
        hidden_size=24.0,
        intermediate_size=52.0,
        num_heads=6.0,
        num_kv_heads=3.0,
        head_dim=10.0,
        vocab_size=97.0,
        qk_norm=1.0,
        num_moe_layers=1.0,
        num_experts=9.0,
        experts_per_token=2.0,
        expert_intermediate_size=17.0,
        num_window_layers=5.0,
        window_tokens=29.0,
    )


def test_latent_attention_by_hand():
    raw = SMALL | {"model_type": "deepseek_v3", "kv_lora_rank": 10, "q_lora_rank": None, "qk_nope_head_dim": 9}
    raw |= {"qk_rope_head_dim": 6, "v_head_dim": 11, "n_routed_experts": 8, "num_experts_per_tok": 3}
    raw |= {"moe_intermediate_size": 17, "n_shared_experts": 2, "first_k_dense_replace": 2, "attention_bias": True}
    read = catalog.architecture_from_config(raw)
    assert (read.head_dim, read.rope_head_dim, read.v_head_dim) == (9, 6, 11)
    assert (read.kv_lora_rank, read.q_lora_rank) == (10, 0)
    assert (read.num_moe_layers, read.num_experts, read.shared_intermediate_size) == (3, 8, 34)
    # Biases of the projections to latents and rotated key and of the output, in 5 layers; 8 corrections in 3.
    assert read.vectors_per_layer == (5 * (10 + 6 + 24) + 3 * 8) / 5


@pytest.mark.parametrize(
    ("more", "layers", "tokens"),
    [
        ({"model_type": "mistral", "sliding_window": 29}, 5, 29),
        ({"model_type": "mistral", "sliding_window": None}, 0, 0),
        ({"model_type": "mistral"}, 5, 4096),  # the class's default
        ({"model_type": "qwen2", "sliding_window": 29}, 0, 0),  # not used unless it is said
        ({"model_type": "qwen2", "sliding_window": 29, "use_sliding_window": True, "max_window_layers": 2}, 3, 29),
        ({"model_type": "qwen2", "sliding_window": 29, "use_sliding_window": True, "max_window_layers": 9}, 0, 0),
        ({"model_type": "gemma2", "sliding_window": 29, "head_dim": 7}, 3, 29),  # layers 0, 2 and 4
        ({"model_type": "gemma3_text", "sliding_window": 29, "sliding_window_pattern": 3, "head_dim": 7}, 4, 29),
        ({"sliding_window": 29, "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 3}, 2, 29),
        ({"sliding_window": 29, "layer_types": ["full_attention"] * 5}, 0, 0),
        ({"sliding_window": 29}, 0, 0),  # a Llama has none
        ({"model_type": "qwen3", "sliding_window": 29, "max_window_layers": 2}, 0, 0),
        ({"model_type": "qwen2_moe", "sliding_window": 29, "num_experts": 9}, 0, 0),
        ({"model_type": "mixtral", "sliding_window": 29}, 5, 29),
        ({"model_type": "phi3", "sliding_window": 29}, 5, 29),
        ({"model_type": "phimoe", "sliding_window": 29}, 5, 29),
        ({"model_type": "starcoder2", "sliding_window": 29}, 5, 29),
        ({"model_type": "qwen3_moe", "sliding_window": 29}, 0, 0),
        ({"model_type": "qwen3_moe", "sliding_window": 29, "use_sliding_window": True}, 5, 29),
    ],
)
def test_windows(more, layers, tokens):
    read = catalog.architecture_from_config(SMALL | more)
    assert (read.num_window_layers, read.window_tokens) == (layers, tokens)


def test_what_decides_no_size_decides_nothing():
    rotary = {
        "rope_theta": 5e5,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        "quantization_config": {"bits": 4},
    }
    assert catalog.read_config(SMALL | rotary) == catalog.read_config(SMALL)
    assert catalog.read_config(SMALL).notes == ()


def test_heads_are_derived_where_they_are_not_stated():
    bare = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
    for raw in (bare, SMALL | {"num_key_value_heads": None, "head_dim": None}):
        read = catalog.architecture_from_config(raw)
        assert (read.num_kv_heads, read.head_dim) == (6, 4)


def test_defaults_are_told():
    raw = {"model_type": "gemma2", "num_hidden_layers": 3, "hidden_size": 24, "vocab_size": 97}
    (note,) = catalog.read_config(raw).notes
    assert note == (
        "not stated, so as the family gemma2 has it: "
        "intermediate_size = 9216, num_attention_heads = 8, num_key_value_heads = 4"
    )


def test_layers_that_predict_further_tokens_are_left_out_and_told():
    raw = SMALL | EXPERTS | {"model_type": "glm4_moe", "head_dim": 7}
    with_them = catalog.read_config(raw | {"num_nextn_predict_layers": 2})
    assert with_them.architecture == catalog.read_config(raw).architecture
    assert with_them.notes == ("num_nextn_predict_layers is 2: layers that predict further tokens are not counted",)


def test_text_part_of_a_multimodal_network():
    text = {"model_type": "gemma3_text", "hidden_size": 48, "num_hidden_layers": 12, "sliding_window": 29}
    raw = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 7}}
    reading = catalog.read_config(raw)
    assert reading.architecture == catalog.architecture_from_config(text)
    assert reading.architecture.tied_embeddings == 1
    assert (
        reading.notes[0] == "the text decoder of 'gemma3', as its text_config describes it; vision_config not counted"
    )
    # The whole network's word on its head counts; sizes that the part leaves out are its family's.
    untied = raw | {"tie_word_embeddings": False, "text_config": {"model_type": "llama", "vocab_size": 97}}
    reading = catalog.read_config(untied)
    assert (reading.architecture.tied_embeddings, reading.architecture.num_layers) == (0, 32)
    assert "num_hidden_layers = 32, hidden_size = 4096" in reading.notes[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_part_may_leave_all_sizes_to_its_family(family):
    # The two families without a usable default of their own: a number of experts per token, and a head's width.
    text = {"model_type": family, "num_experts_per_tok": 2} | ({"head_dim": 128} if family == "glm4_moe" else {})
    read = catalog.architecture_from_config({"model_type": "wrapper", "text_config": text})
    assert [read.num_layers, read.hidden_size] == COUNTED["layers_and_hidden_size"][family]


def test_an_unknown_family_without_odd_keys_is_read_as_a_llama():
    reading = catalog.read_config(UNKNOWN | {"attention_bias": True, "mlp_bias": True, "use_parallel": False})
    expected = catalog.architecture_from_config(SMALL | {"attention_bias": True, "mlp_bias": True})
    assert reading.architecture == expected
    assert reading.notes == (
        "model_type 'lama9' is not known: read as a Llama-like decoder, as every key of the file allows",
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (SMALL | {"is_encoder_decoder": True}, "is_encoder_decoder is True: an encoder beside the decoder"),
        (SMALL | {"add_cross_attention": True}, "add_cross_attention is True: cross attention"),
        (SMALL | {"mamba_d_state": 16}, "mamba_d_state is 16: state-space layers"),
        (SMALL | {"model_type": "deepseek_v32", "index_topk": 64}, "index_topk is 64: attention to selected tokens"),
        (
            SMALL | {"layer_types": ["linear_attention"] * 5},
            r"layer_types has \['linear_attention'\], which are not modelled",
        ),
        (
            SMALL | {"model_type": "deepseek_v3", "moe_layer_freq": 2},
            "moe_layer_freq = 2 is not modelled; allowed is 1",
        ),
        (SMALL | {"model_type": "opt", "do_layer_norm_before": False}, "do_layer_norm_before = False is not modelled"),
        (
            SMALL | {"model_type": "opt", "num_key_value_heads": 6, "word_embed_proj_dim": 7},
            "embeddings of another width are not modelled",
        ),
        (SMALL | {"model_type": "phi", "qk_layernorm": True}, "phi with qk_layernorm = True is not modelled"),
        (
            UNKNOWN | {"num_experts": 4},
            r"model_type 'lama9' is not known \(did you mean 'llama'.*'num_experts'.* may change",
        ),
        (UNKNOWN | {"vision_config": {"a": 1}}, r"\['vision_config'\] may change its shape"),
        (UNKNOWN | {"hidden_act": "relu2"}, "its hidden_act is 'relu2'; a Llama-like decoder has 'silu'"),
        (UNKNOWN | {"rms_norm_eps": None}, "without rms_norm_eps it is not Llama-like"),
        (
            {"model_type": "t6"},
            "without num_hidden_layers, hidden_size, .* it is not Llama-like; known families: llama",
        ),
        ({"model_type": "m", "text_config": SMALL | {"cross_attention_layers": [3]}}, "cross attention"),
    ],
)
def test_what_is_not_modelled_is_named(raw, message):
    with pytest.raises(NotImplementedError, match=message) as caught:
        catalog.read_config(raw)
    check_message(caught.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([SMALL], r"is \[\{.*\}\]; it must be a JSON object"),
        ({}, "model_type is None; it must be a text such as llama"),
        (SMALL | {"model_type": 3}, "model_type is 3; it must be a text"),
        ({"model_type": "llama", "hidden_size": 24}, "num_hidden_layers is missing"),
        ({"model_type": "gpt2", "n_layer": 3}, "n_embd is missing"),
        (
            SMALL | {"num_hidden_layers": "five"},
            "num_hidden_layers is 'five'; it must be a whole number from 1 to 65536",
        ),
        (
            SMALL | {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000; it must be a whole number from 1 to 65536",
        ),
        (SMALL | {"hidden_size": 24.0}, "hidden_size is 24.0; it must be a whole number"),
        (SMALL | {"hidden_size": -24}, "hidden_size is -24; it must be"),
        (SMALL | {"vocab_size": True}, "vocab_size is True; it must be a whole number"),
        (SMALL | {"vocab_size": 10**5000}, "vocab_size is a int too long to show; it must be a whole number"),
        (SMALL | {"vocab_size": math.nan}, "vocab_size is nan; it must be"),
        (SMALL | {"intermediate_size": None}, "intermediate_size is None; it must be a whole number"),
        (SMALL | {"vocab_size": None}, "vocab_size is None; it must be"),
        (SMALL | {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        (SMALL | {"attention_bias": 1}, "attention_bias is 1; it must be true or false"),
        (SMALL | {"num_attention_heads": 5}, "hidden_size is 24, which 5 heads do not divide; .* or head_dim stated"),
        (SMALL | {"model_type": "falcon", "num_attention_heads": 5}, "it must be a multiple of them$"),
        (SMALL | {"num_key_value_heads": 4}, "num_heads is 6 and num_kv_heads is 4; key-value heads must divide heads"),
        (SMALL | {"layer_types": "full"}, "layer_types is 'full'; it must be a list of texts"),
        (SMALL | {"layer_types": ["full_attention"] * 4}, "layer_types has 4 entries for 5 layers"),
        (SMALL | {"layer_types": ["sliding_attention"] * 5}, "sliding_window is missing; it must be a whole number"),
        (SMALL | {"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0; it must be"),
        (
            SMALL | EXPERTS | {"model_type": "qwen3_moe", "num_experts_per_tok": 10},
            "experts_per_token is 10 and num_experts",
        ),
        (
            SMALL | EXPERTS | {"model_type": "qwen3_moe", "mlp_only_layers": [1.5]},
            r"mlp_only_layers is \[1.5\]; it must be",
        ),
        (
            SMALL | EXPERTS | {"model_type": "qwen3_moe", "num_local_experts": 8},
            "num_experts = 9, num_local_experts = 8: these",
        ),
        (
            SMALL | EXPERTS | {"model_type": "glm4_moe_lite", "mlp_layer_types": ["moe"] * 5},
            "each entry must be 'dense'",
        ),
        (
            SMALL | {"model_type": "mixtral", "num_local_experts": 0},
            "num_local_experts is 0; every layer of this family has",
        ),
        (SMALL | {"model_type": "gpt_neox"}, "num_key_value_heads is 3; this family has as many as query heads, 6"),
        (
            SMALL | {"model_type": "stablelm", "head_dim": 7},
            "head_dim is 7; in this family it is hidden_size / heads = 4",
        ),
        ({"model_type": "llava", "text_config": [1]}, r"text_config is \[1\]; it must be an object"),
        (
            {"model_type": "llava", "text_config": SMALL | {"hidden_size": "x"}},
            "config.json: text_config: hidden_size is 'x'",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(raw, message):
    with pytest.raises(catalog.EntryError, match=message) as caught:
        catalog.read_config(raw)
    check_message(caught.value)


def check_message(error):
    text = str(error)
    assert text.startswith("config.json")
    assert "\n" not in text
    assert len(text) < LONGEST_MESSAGE


def test_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    expected = catalog.architecture_from_config(SMALL)
    assert catalog.architecture_from_config_file(path) == expected
    assert catalog.architecture_from_config_file(str(tmp_path)) == expected
    path.write_text(json.dumps(SMALL | {"vocab_size": 0}), encoding="utf-8")
    with pytest.raises(catalog.EntryError, match=r"config.json: vocab_size is 0; it must be"):
        catalog.architecture_from_config_file(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b'{"vocab_size": ' + b"9" * 5000 + b"}", b"[" * 100_000],
    ids=["empty", "cut", "not UTF-8", "endless number", "endless nesting"],
)
def test_files_that_are_no_json(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    for name in (path, tmp_path / "absent.json"):
        with pytest.raises(
            catalog.EntryError, match=r"cannot be read as JSON: .*; give the path of a config\.json"
        ) as caught:
            catalog.architecture_from_config_file(name)
        assert "\n" not in str(caught.value)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([0, -1, 2**40, 2**40 + 1, 2**63, 10**400, 10**5000, sys.maxsize]),
    st.floats(),
    st.text(max_size=6),
    st.lists(st.one_of(st.integers(-2, 7), st.sampled_from(["full_attention", "sparse", "", "\n"])), max_size=6),
    st.recursive(
        st.none() | st.text(max_size=2), lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
)
KEYS = sorted(
    {key for case in CASES.values() for key in case["config"]} | {"text_config", "head_dim", "is_encoder_decoder"}
)


def check_reading(raw):
    try:
        read = catalog.read_config(raw).architecture
    except (catalog.EntryError, NotImplementedError) as error:
        check_message(error)
    else:
        assert all(type(value) is float and 0 <= value < math.inf for value in vars(read).values())
        assert 1 <= read.num_kv_heads <= read.num_heads
        assert read.num_moe_layers + read.num_window_layers <= 2 * read.num_layers


@settings(max_examples=400)
@given(
    name=st.sampled_from(sorted(CASES)),
    changes=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
    removed=st.sets(st.sampled_from(KEYS), max_size=3),
)
def test_damaged_files_are_read_or_refused_in_one_line(name, changes, removed):
    raw = {key: value for key, value in CASES[name]["config"].items() if key not in removed} | changes
    check_reading(raw)
    check_reading({"model_type": "wrapper", "text_config": raw})


@settings(max_examples=200)
@given(raw=st.dictionaries(st.sampled_from([*KEYS, "", "x"]) | st.text(max_size=4), JUNK, max_size=8) | JUNK)
def test_nonsense_is_refused_in_one_line(raw):
    check_reading(raw)


def test_architectures_of_all_families_go_through_one_vmap(jit_once):
    read = [catalog.architecture_from_config(CASES[f"{family} defaults"]["config"]) for family in FAMILIES]
    stacked = jax.tree.map(lambda *leaves: jax.numpy.asarray(leaves), *read)
    totals = sum(jit_once(jax.vmap(parameters))(stacked).values())
    expected = [CASES[f"{family} defaults"]["counts"]["total"] for family in FAMILIES]
    assert list(map(float, totals)) == pytest.approx(expected, rel=1e-6)
