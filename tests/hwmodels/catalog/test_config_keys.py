"""Every key of a config.json is read, irrelevant with a reason, refused by name, or named; heads are told from networks."""

import pytest
from huggingface_cases import CASES, SMALL

from hwmodels import catalog
from hwmodels.networks import draft_head
from hwmodels.networks.keys import IRRELEVANT, irrelevance

#: Keys that releases of known families have beside their sizes, with values that turn nothing off.
ORDINARY = {
    **{"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoConfig": "a.B"}, "torch_dtype": "bfloat16"},
    **{"bos_token_id": 1, "eos_token_id": [2, 3], "id2label": {"0": "LABEL_0"}, "transformers_version": "4.55.0"},
    **{"attention_dropout": 0.1, "embd_pdrop": 0.1, "initializer_range": 0.02, "router_aux_loss_coef": 0.001},
    **{"rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"}},
    **{"max_position_embeddings": 4096, "use_cache": True, "pretraining_tp": 2, "max_length": 20, "top_k": 50},
    **{"_name_or_path": "a/b", "logit_scale": 0.0625, "scoring_func": "sigmoid", "summary_type": "cls_index"},
    **{"max_window_layers": 28, "ep_size": 8, "seq_aux": True, "image_token_id": 7, "unsloth_fixed": True},
}


def test_ordinary_keys_change_nothing_and_are_not_named():
    assert catalog.read_config(SMALL | ORDINARY) == catalog.read_config(SMALL)


def test_an_unknown_key_of_a_known_family_is_named():
    reading = catalog.read_config(SMALL | {"depth_router": 3, "attention_kind": "new", "rope_theta": 1e4})
    assert reading.architecture == catalog.read_config(SMALL).architecture
    (note,) = reading.notes
    assert note == (
        "keys of config.json that are not known here, and left out of all prices: depth_router, attention_kind"
    )


@pytest.mark.parametrize("off", [None, False, 0, 0.0, 1.0, [], {}, ""])
def test_an_unknown_key_that_is_off_is_not_named(off):
    assert catalog.read_config(SMALL | {"depth_router": off}).notes == ()


def test_an_unknown_key_around_a_text_part_is_named():
    raw = {"model_type": "gemma3", "vision_config": {"a": 1}, "mm_tokens_per_image": 256, "token_pruning": 3}
    text = {"model_type": "gemma3_text", "hidden_size": 48, "num_hidden_layers": 12, "early_exit": 4}
    notes = catalog.read_config(raw | {"text_config": text}).notes
    assert any(note.endswith("left out of all prices: early_exit, token_pruning") for note in notes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_local_experts": 8}, "num_local_experts is 8: experts in a family without any"),
        ({"zero_expert_num": 4}, "zero_expert_num is 4: experts that compute nothing"),
        ({"total_ut_steps": 4}, "total_ut_steps is 4: layers that run several times"),
        ({"hc_mult": 4}, "hc_mult is 4: several residual streams"),
        ({"cla_share_factor": 2}, "cla_share_factor is 2: layers that share their cache"),
        ({"attn_type_list": [1, 0, 0, 0, 1]}, r"attn_type_list is \[1, 0, 0, 0, 1\]: linear attention"),
    ],
)
def test_a_key_that_changes_a_cost_is_refused(more, message):
    with pytest.raises(NotImplementedError, match=message):
        catalog.read_config(SMALL | more)


def test_a_key_of_experts_is_no_feature_of_a_family_with_some():
    more = {"num_local_experts": 9, "num_experts_per_tok": 2, "head_dim": 4, "attn_type_list": [1] * 5}
    raw = SMALL | more | {"model_type": "minimax_m2"}
    assert not [note for note in catalog.read_config(raw).notes if "not known" in note]


def test_a_list_of_one_number_for_all_layers_is_that_number():
    raw = SMALL | {"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": 2, "head_dim": 4}
    shared = {"use_cla": False, "cla_share_factor": 2}
    listed = catalog.read_config(raw | shared | {"moe_topk": [2] * 5, "num_shared_expert": [1] * 5})
    assert listed == catalog.read_config(raw)
    assert listed.notes == ()
    for differing in ([2] * 4, [2, 2, 2, 2, 3]):
        with pytest.raises(
            catalog.EntryError, match=r"moe_topk is \[2, 2, 2, 2.*\]; it must be .*, the same in all layers"
        ):
            catalog.read_config(raw | {"moe_topk": differing})


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("small")])
def test_no_key_of_a_released_family_is_unknown(name):
    notes = catalog.read_config(CASES[name]["config"]).notes
    assert not [note for note in notes if "not known here" in note]


def test_every_list_of_irrelevant_keys_has_a_reason():
    assert all(reason and patterns for reason, patterns in IRRELEVANT.items())
    assert irrelevance("pad_token_id") == "numbers of tokens and labels"
    assert irrelevance("num_experts") is None


EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 53}
HEADS = [
    (SMALL | EAGLE3, "an EAGLE-3 head", "eagle3", 53),
    (SMALL | {"draft_vocab_size": 53}, "an EAGLE-3 head", "eagle3", 53),
    (
        {"speculators_model_type": "eagle3", "transformer_layer_config": SMALL, "draft_vocab_size": 53},
        None,
        "eagle3",
        53,
    ),
    (SMALL | {"eagle_config": {"use_aux_hidden_state": True}}, "an EAGLE-3 head", "eagle3", None),
    ({"architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2"}, "an EAGLE-3 head", "eagle3", None),
    ({"model_type": "eagle", "architectures": ["EAGLEModel"], "model": SMALL}, "an EAGLE head", "eagle", None),
    (SMALL | {"architectures": ["EagleLlamaForCausalLM"]}, "an EAGLE head", "eagle", None),
    (SMALL | {"architectures": ["DeepseekV3ForCausalLMNextN"]}, "a head of multi-token prediction", "mtp", None),
    (SMALL | {"num_hidden_layers": 1, "num_nextn_predict_layers": 1}, "a head of multi-token prediction", "mtp", None),
    ({"model_type": "qwen3_next_mtp"}, "a head of multi-token prediction", "mtp", None),
    ({"model_type": "medusa", "medusa_num_heads": 4}, "a Medusa head", "medusa", None),
    ({"medusa_num_heads": 4, "medusa_num_layers": 1}, "a Medusa head", "medusa", None),
    (
        {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"},
        "an MLP speculator",
        None,
        None,
    ),
    ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 16}, "a DFlash head", None, None),
    (SMALL | {"dflash_config": {"mask_token_id": 3}}, "a DFlash head", None, None),
    ({"architectures": ["PEagleLlamaForCausalLM"]}, "a P-EAGLE head", None, None),
    ({"speculators_model_type": "peagle", "transformer_layer_config": SMALL}, "a P-EAGLE head", None, None),
    ({"hydra_num_heads": 4, "hydra_num_layers": 1}, "a Hydra head", None, None),
    ({"architectures": ["LlamaDraftModel"], "model_type": "llama"}, "a draft head", None, None),
]


@pytest.mark.parametrize(("raw", "title", "drafts_as", "rows"), HEADS)
def test_a_draft_head_is_recognised(raw, title, drafts_as, rows):
    head = draft_head(raw)
    assert head is not None
    assert head.title == (title or head.title)
    assert (head.drafts_as, head.vocabulary) == (drafts_as, rows)


@pytest.mark.parametrize("raw", [raw for raw, *_ in HEADS])
def test_a_draft_head_is_no_target(raw):
    with pytest.raises(NotImplementedError, match="which is no network of its own; give"):
        catalog.read_config(raw)


@pytest.mark.parametrize("name", CASES)
def test_a_network_is_no_draft_head(name):
    assert draft_head(CASES[name]["config"]) is None


def test_a_vocabulary_of_a_head_is_checked():
    with pytest.raises(catalog.EntryError, match="draft_vocab_size is 'all'; it must be a whole number"):
        draft_head(SMALL | {"draft_vocab_size": "all"})


def test_one_layer_alone_may_be_a_head():
    (note,) = catalog.read_config(SMALL | {"num_hidden_layers": 1}).notes
    assert "eagle or eagle3" in note
