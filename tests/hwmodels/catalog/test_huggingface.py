"""Architectures from config.json against the parameters of the networks that transformers builds from the same file."""

import jax
import pytest
from huggingface_cases import CASES, COUNTED, EXPERTS, GROUPS, SMALL, UNKNOWN, groups_of

from hwmodels import Architecture, catalog, parameters
from hwmodels.networks.families import FAMILIES

#: Families with whole networks among the counted cases; files of the others must state more than sizes.
NOT_WHOLE = {
    *("granitemoehybrid", "lfm2_moe", "deepseek_v32", "glm_moe_dsa", "minimax_m3", "mimo_v2_flash", "gemma4_text"),
    *("llama4_text", "step3p7", "nemotron_h", "nemotron-nas"),
}
WHOLE = [name for name in FAMILIES if name not in NOT_WHOLE]


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_networks(name, x64):
    counts = dict(CASES[name]["counts"])
    total, window_layers, linear_layers = (
        counts.pop(name, None) for name in ("total", "window_layers", "linear_layers")
    )
    architecture = catalog.architecture_from_config(CASES[name]["config"])
    groups = groups_of(architecture)
    assert groups == dict.fromkeys(GROUPS, 0) | counts
    assert sum(groups.values()) == total
    if window_layers is not None:
        assert architecture.num_window_layers == window_layers
    assert architecture.num_linear_layers == (linear_layers or 0)
    assert {type(leaf) for leaf in vars(architecture).values()} == {float}


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


def test_heads_are_derived_where_they_are_not_stated():
    bare = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
    for raw in (bare, SMALL | {"num_key_value_heads": None, "head_dim": None}):
        read = catalog.architecture_from_config(raw)
        assert (read.num_kv_heads, read.head_dim) == (6, 4)


def test_defaults_are_named():
    raw = {"model_type": "gemma2", "num_hidden_layers": 3, "hidden_size": 24, "vocab_size": 97}
    (note,) = catalog.read_config(raw).notes
    assert note == (
        "not stated, so as the family gemma2 has it: "
        "intermediate_size = 9216, num_attention_heads = 8, num_key_value_heads = 4"
    )


def test_multi_token_layers_are_left_out_with_a_note():
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
    unnamed = {key: value for key, value in text.items() if key != "model_type"}
    assert catalog.read_config(raw | {"text_config": unnamed}).architecture == reading.architecture
    assert (
        reading.notes[0] == "the text decoder of 'gemma3', as its text_config describes it; vision_config not counted"
    )
    # The whole network's word on its head counts; sizes that the part leaves out are its family's.
    untied = raw | {"tie_word_embeddings": False, "text_config": {"model_type": "llama", "vocab_size": 97}}
    reading = catalog.read_config(untied)
    assert (reading.architecture.tied_embeddings, reading.architecture.num_layers) == (0, 32)
    assert "num_hidden_layers = 32, hidden_size = 4096" in reading.notes[1]


@pytest.mark.parametrize("family", WHOLE)
def test_a_text_part_may_leave_all_sizes_to_its_family(family):
    # The two families without a usable default of their own: a number of experts per token, and a head's width.
    chosen = 1 if family == "hunyuan_v1_moe" else 2  # which has one expert
    text = {"model_type": family, "num_experts_per_tok": chosen} | ({"head_dim": 128} if family == "glm4_moe" else {})
    read = catalog.architecture_from_config({"model_type": "wrapper", "text_config": text})
    assert [read.num_layers, read.hidden_size] == COUNTED["layers_and_hidden_size"][family]


def test_an_unknown_family_without_odd_keys_is_read_as_a_llama():
    reading = catalog.read_config(UNKNOWN | {"attention_bias": True, "mlp_bias": True, "use_parallel": False})
    expected = catalog.architecture_from_config(SMALL | {"attention_bias": True, "mlp_bias": True})
    assert reading.architecture == expected
    assert reading.notes == (
        "model_type 'lama9' is not known: read as a Llama-like decoder, as every key of the file allows",
    )


def test_architectures_of_all_families_go_through_one_vmap(jit_once):
    read = [catalog.architecture_from_config(CASES[f"{family} defaults"]["config"]) for family in WHOLE]
    stacked = jax.tree.map(lambda *leaves: jax.numpy.asarray(leaves), *read)
    totals = sum(jit_once(jax.vmap(parameters))(stacked).values())
    expected = [CASES[f"{family} defaults"]["counts"]["total"] for family in WHOLE]
    assert list(map(float, totals)) == pytest.approx(expected, rel=1e-6)
