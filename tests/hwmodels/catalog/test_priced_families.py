"""Families that are priced only: sizes counted by hand from reduced files, and forms of their releases."""

import pytest
from huggingface_cases import SMALL, groups_of

from hwmodels import catalog
from hwmodels.networks import read_config

LAYERS, HIDDEN, VOCAB = 5, 24, 97
ENDS = 2 * HIDDEN * VOCAB
EXPERTS = {"num_experts": 9, "num_experts_per_tok": 2, "moe_intermediate_size": 17, "head_dim": 4}


def total(raw):
    return sum(groups_of(catalog.architecture_from_config(raw)).values())


def test_minimax_m3_by_hand():
    freq = [0, 1, 1, 1, 1]
    index = {"sparse_index_dim": 7, "sparse_num_index_heads": 2, "sparse_topk_blocks": 3, "sparse_block_size": 11}
    raw = SMALL | {"model_type": "minimax_m3", "head_dim": 4, "dense_intermediate_size": 31, "moe_layer_freq": freq}
    raw |= {"num_local_experts": 9, "num_experts_per_tok": 2, "intermediate_size": 17, "shared_intermediate_size": 19}
    raw |= {"n_shared_experts": 1, "sparse_attention_config": index | {"sparse_attention_freq": freq}}
    one = catalog.architecture_from_config(raw)
    assert (one.selected_tokens, one.num_selecting_layers, one.num_index_layers) == (33, 4, 4)
    attention = HIDDEN * 4 * (6 + 3 + 3 + 6) + 2 * 4
    indexed = HIDDEN * (2 * 7 + 7 + 2) + 2 * 7
    mixture = 3 * HIDDEN * (9 * 17 + 19) + 9 * HIDDEN + 9
    layers = LAYERS * (attention + 2 * HIDDEN) + 4 * (indexed + mixture) + 3 * HIDDEN * 31
    assert total(raw) == ENDS + HIDDEN + layers


def test_mimo_v2_by_hand():
    sliding = [0, 1, 1, 0, 1]
    raw = SMALL | EXPERTS | {"model_type": "mimo_v2_flash", "v_head_dim": 3, "sliding_window": 13}
    raw |= {"swa_num_attention_heads": 6, "swa_num_key_value_heads": 6, "swa_head_dim": 4, "swa_v_head_dim": 3}
    raw |= {"hybrid_layer_pattern": sliding, "moe_layer_freq": [0, 1, 1, 1, 1], "attention_chunk_size": 13}
    raw |= {"add_swa_attention_sink_bias": True, "n_shared_experts": None}
    one = catalog.architecture_from_config(raw)
    assert (one.window_tokens, one.num_window_layers, one.window_kv_ratio) == (13, 3, 2)
    full, windowed = HIDDEN * 7 * (6 + 3), HIDDEN * 7 * (6 + 6) + 6
    mixture = 9 * 3 * HIDDEN * 17 + 9 * HIDDEN + 9
    dense = 3 * HIDDEN * 52
    assert total(raw) == ENDS + HIDDEN + 10 * HIDDEN + 2 * full + 3 * windowed + 4 * mixture + dense
    with pytest.raises(NotImplementedError, match="add_full_attention_sink_bias = True is not modelled"):
        read_config(raw | {"add_full_attention_sink_bias": True})


def test_step_by_hand():
    kinds = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    raw = SMALL | EXPERTS | {"model_type": "step3p7", "first_k_dense_replace": 2, "share_expert_dim": 19}
    raw |= {"layer_types": kinds, "sliding_window": 13, "n_shared_experts": 1}
    attention = HIDDEN * 4 * (6 + 3 + 3 + 6) + 2 * 4 + 2 * HIDDEN
    mixture = 3 * HIDDEN * (9 * 17 + 19) + 9 * HIDDEN + 9
    assert total(raw) == ENDS + HIDDEN + 5 * attention + 3 * mixture + 2 * 3 * HIDDEN * 52


def test_layers_of_a_search_by_hand():
    def block(group, width):
        return {
            "attention": {"no_op": group is None, "n_heads_in_group": group, "sparsify": None},
            "ffn": {"no_op": width is None, "ffn_mult": width, "replace_with_linear": False},
        }

    blocks = [block(3, 16.0), block(None, 32.0), block(3, None), block(None, 16.0), block(3, 16.0)]
    raw = SMALL | {"model_type": "nemotron-nas", "block_configs": blocks, "num_key_value_heads": None}
    # int(2 * 16 * 24 / 3) = 256, which is whole, and 512; 3 layers attend, with 2 key-value heads of 4, and 4 feed.
    attention, widths = HIDDEN * 4 * (6 + 2 + 2 + 6), 3 * 256 + 512
    assert total(raw) == ENDS + HIDDEN + 3 * (attention + HIDDEN) + 4 * HIDDEN + 3 * HIDDEN * widths
    assert any("2 widths" in note or "3 widths" in note for note in read_config(raw).notes)
    blocks[0]["attention"]["replace_with_linear"] = True
    with pytest.raises(NotImplementedError, match="block_configs with replace_with_linear is not modelled"):
        read_config(raw)


def test_one_indexer_of_glm_serves_several_layers():
    latent = {"kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 9, "qk_rope_head_dim": 6, "v_head_dim": 11}
    raw = SMALL | EXPERTS | latent | {"model_type": "glm_moe_dsa", "num_key_value_heads": 6, "n_shared_experts": 1}
    raw |= {"index_topk": 8, "index_n_heads": 2, "index_head_dim": 8, "first_k_dense_replace": 1}
    del raw["head_dim"]
    every = catalog.architecture_from_config(raw)
    assert (every.num_selecting_layers, every.num_index_layers) == (5, 5)
    # The first two layers score, and then every fourth.
    some = read_config(raw | {"index_topk_freq": 2, "index_skip_topk_offset": 2})
    assert some.architecture.num_index_layers == 3
    assert not [note for note in some.notes if "index" in note]
    listed = ["full", "shared", "shared", "full", "shared"]
    assert catalog.architecture_from_config(raw | {"indexer_types": listed}).num_index_layers == 2


def test_forms_follow_the_modules_of_layers_of_one_block():
    raw = SMALL | {"model_type": "nemotron_h", "hybrid_override_pattern": "ME*EM", "head_dim": 4, "mlp_bias": False}
    raw |= {"mamba_num_heads": 4, "mamba_head_dim": 6, "n_groups": 2, "ssm_state_size": 5, "conv_kernel": 3}
    raw |= {"n_routed_experts": 9, "num_experts_per_tok": 2, "moe_intermediate_size": 17}
    raw |= {"moe_shared_expert_intermediate_size": 19, "n_shared_experts": 1, "tie_word_embeddings": False}
    form = {"quant_algo": "FP8", "exclude_modules": ["lm_head", "backbone.layers.2.mixer.q_proj", "*.shared_experts.*"]}
    stored = read_config(raw, quantization={"quantization": form}).stored
    assert stored is not None
    bits = stored.weight_bits
    assert (bits["expert_up"], bits["shared"], bits["lm_head"], bits["k"]) == (8, 16, 16, 8)
    # Of queries 24 * 24 weights of one layer keep 16 bits; in two layers Mamba-2 has 24 * (10 + 24).
    assert bits["q"] == pytest.approx((16 * 24 * 24 + 8 * 2 * 24 * 34) / (24 * 24 + 2 * 24 * 34))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "layers_block_type is .*; each must be one of"),
        ({"model_type": "gemma4_text", "num_kv_shared_layers": 2}, "num_kv_shared_layers is 2: layers that share"),
        ({"model_type": "deepseek_v4", "hc_mult": 4}, "hc_mult is 4: several residual streams"),
    ],
)
def test_what_is_not_modelled_of_them_is_named(raw, message):
    with pytest.raises((NotImplementedError, catalog.EntryError), match=message):
        read_config(SMALL | raw)
