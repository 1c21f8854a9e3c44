"""Configurations that are refused, each in one line, and damaged ones."""

import json
import math
import sys

import pytest
from huggingface_cases import CASES, EXPERTS, LONGEST_MESSAGE, SMALL, UNKNOWN
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels import catalog

HYBRID = CASES["qwen3_5_text small"]["config"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (SMALL | {"is_encoder_decoder": True}, "is_encoder_decoder is True: an encoder beside the decoder"),
        (SMALL | {"add_cross_attention": True}, "add_cross_attention is True: cross attention"),
        (SMALL | {"mamba_d_state": 16}, "mamba_d_state is 16: state-space layers"),
        (SMALL | {"model_type": "deepseek_v4", "index_topk": 64}, "index_topk is 64: attention to selected tokens"),
        (SMALL | {"layer_types": ["linear_attention"] * 5}, r"layer_types has \['linear_attention'\], which are not"),
        (
            HYBRID | {"layer_types": ["linear_attention"] * 4 + ["sliding_attention"]},
            r"layer_types has \['sliding_attention'\], which are not modelled; allowed: full_attention, linear_attention",
        ),
        (HYBRID | {"attn_output_gate": False}, "qwen3_5_text with attn_output_gate = False is not modelled"),
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
        (UNKNOWN | {"num_experts": 4}, r"model_type 'lama9' is not known \(did you mean 'llama'.*'num_experts'.* may"),
        (UNKNOWN | {"vision_config": {"a": 1}}, r"\['vision_config'\] may change its shape"),
        (UNKNOWN | {"hidden_act": "relu2"}, "its hidden_act is 'relu2'; a Llama-like decoder has 'silu'"),
        (
            {"model_type": "t6"},
            "without num_hidden_layers, hidden_size, .* it is not Llama-like; .* families are known",
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
        (
            SMALL | {"num_hidden_layers": "five"},
            "num_hidden_layers is 'five'; it must be a whole number from 1 to 65536",
        ),
        (SMALL | {"hidden_size": -24}, "hidden_size is -24; it must be"),
        (SMALL | {"vocab_size": 10**5000}, "vocab_size is a int too long to show; it must be a whole number"),
        (SMALL | {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        (SMALL | {"num_attention_heads": 5}, "hidden_size is 24, which 5 heads do not divide; .* or head_dim stated"),
        (SMALL | {"model_type": "falcon", "num_attention_heads": 5}, "it must be a multiple of them$"),
        (SMALL | {"num_key_value_heads": 4}, "num_heads is 6 and num_kv_heads is 4; key-value heads must divide heads"),
        (SMALL | {"layer_types": "full"}, "layer_types is 'full'; it must be a list of texts"),
        (SMALL | {"layer_types": ["sliding_attention"] * 5}, "sliding_window is missing; it must be a whole number"),
        (SMALL | {"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0; it must be"),
        (
            SMALL | EXPERTS | {"model_type": "qwen3_moe", "num_experts_per_tok": 10},
            "num_experts_per_tok is 10; it must be at most the 9 experts",
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
        (SMALL | {"model_type": "stablelm", "head_dim": 7}, "head_dim is 7; in this family it is hidden_size / heads"),
        ({"model_type": "llava", "text_config": [1]}, r"text_config is \[1\]; it must be an object"),
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
    with pytest.raises(catalog.EntryError, match=r"absent.json: cannot be read \(No such file or directory\); give"):
        catalog.architecture_from_config_file(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b'{"vocab_size": ' + b"9" * 5000 + b"}", b"[" * 100_000],
    ids=["empty", "cut", "not UTF-8", "endless number", "endless nesting"],
)
def test_files_that_are_no_json(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(
        catalog.EntryError, match=r"cannot be read as JSON: .*; give the path of a config\.json"
    ) as caught:
        catalog.architecture_from_config_file(path)
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
        values = dict(vars(read))
        # Below 0 in Gemma 4, whose norms of narrow heads are shorter than those that are counted.
        assert math.isfinite(values.pop("vectors_per_layer"))
        assert all(type(value) is float and 0 <= value < math.inf for value in values.values())
        assert 1 <= read.num_kv_heads <= read.num_heads
        assert read.num_moe_layers + read.num_window_layers <= 2 * read.num_layers


@pytest.mark.device_matrix
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


@pytest.mark.device_matrix
@settings(max_examples=200)
@given(raw=st.dictionaries(st.sampled_from([*KEYS, "", "x"]) | st.text(max_size=4), JUNK, max_size=8) | JUNK)
def test_nonsense_is_refused_in_one_line(raw):
    check_reading(raw)
