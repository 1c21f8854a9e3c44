"""What becomes of each key of a config.json: the family reads it, it cannot change a cost, it is refused, or it is named.

Refused are keys that announce what is not modelled (`announced`); whatever no list here has is named in a note, so that no key
is dropped in silence. A value that turns a feature off needs no list.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from fnmatch import translate
from typing import Any

from hwmodels.networks.family import Family, Setting
from hwmodels.networks.settings import shown

__all__ = ["IRRELEVANT", "ORDINARY", "announced", "irrelevance", "is_off", "keys_of", "unknown_keys"]

#: Reason why a key cannot change what a step costs -> names, or globs of names, of any family.
ORDINARY: dict[str, str] = {
    "numbers of tokens and labels": """
        *_token_id *_token_ids *_token_index id2label label2id num_labels tokenizer_class eos_id bos_id pad_id bos_token
        eos_token pad_token unk_token image_token mask_token suppress_tokens begin_suppress_tokens prefix bad_words_ids""",
    "of training": """
        *dropout* *_pdrop *_drop *aux_loss* *jitter_noise* initializer_* init_* *_init *_initializer_range *_init_std
        rescale_prenorm_residual gradient_checkpointing seq_aux z_loss* router_z_loss* *_loss_coef *_loss_weight
        *_loss_factor *_loss_alpha tf_legacy_loss problem_type finetuning_* task_specific_params summary_* classifier_*
        layerdrop label_smoothing""",
    "of the library that wrote it": """
        architectures auto_map custom_pipelines model_type *_version use_cache _name_or_path _attn_implementation*
        _commit_hash _from_model_config _experts_impl* name_or_path output_attentions output_hidden_states
        output_router_logits return_dict* torchscript use_bfloat16 is_decoder pruned_heads chunk_size_feed_forward
        unsloth_* attn_implementation use_flash_attn* use_flash_attention* use_kernel* use_mamba_kernels fused_*
        use_fused* ep_size pretraining_tp num_logits_to_keep *_expert_overlap slow_but_exact use_dynamic_ntk
        use_logn_attn cache_implementation generation_config""",
    "of generation": """
        do_sample temperature top_k top_p typical_p min_p max_length min_length max_new_tokens num_beams num_beam_groups
        num_return_sequences *_penalty *_ngram_size early_stopping output_scores remove_invalid_values use_return_dict""",
    "a type, which engines serve in 16 bits": "dtype torch_dtype params_dtype",
    "of positions, which cost the same wherever they are": """
        rope_* *_rope_theta indexer_rope_* rotary_* partial_rotary_factor original_max_position_embeddings
        initial_context_length max_position_embeddings max_sequence_length max_seq_length max_seq_len seq_length
        model_max_length n_ctx n_positions no_rope_* mrope_* use_rope use_mrope position_embedding_type rotary alibi*
        yarn_* local_rope_* local_attention_theta""",
}

#: The same of keys that change values alone, in families whose sizes are known.
IRRELEVANT: dict[str, str] = ORDINARY | {
    "changes values, no sizes": """
        *norm_eps* *norm_epsilon* hidden_act hidden_activation activation activation_function *_multiplier *_scaling
        logit_scale logits_scale *softcap* query_pre_attn_scalar scale_* swiglu_* *_clip* clip_* attention_scale
        attention_value_scale mup_* use_gemma_norm mamba_hidden_act mlp_hidden_act time_step_* use_moe_router_bias *_fp32
        use_parallel_residual parallel_residual apply_residual_connection_post_layernorm use_rms_norm norm_type
        scoring_func topk_method norm_topk_prob *scaling_factor router_bias* router_scal* *router_dtype n_group topk_group
        output_gate_type dim_model_base mamba_ssm_dtype use_qk_norm qk_norm_type use_routing_bias qk_head_dim
        torch_compile""",
    "which layers see a window, in families whose layers are alike": "max_window_layers",
    "how many layers share a cache, in families that refuse `use_cla`, which has them share it": "cla_share_factor",
    "of parts that see or hear, which are not counted": """
        *vision* image_* video_* audio_* mm_* multimodal_* projector_* projection_* spatial_* *_placeholder ignore_index
        img_* process_image_* boi_* eoi_* patch_* media_*""",
    "priced apart, or named in a note": """
        quantization_config compression_config tie_word_embeddings num_nextn_predict_layers num_mtp_* mtp_* use_mtp
        *_for_mtp_* text_config vision_config audio_config""",
}

#: Feature -> parts of the names of keys that announce it, in any family, unless null, false or 0.
_UNMODELLED = {
    "an encoder beside the decoder": "is_encoder_decoder encoder_layers",
    "cross attention": "cross_attention",
    "state-space layers": "mamba ssm_ state_size",
    "linear attention": "linear_attn linear_conv linear_key_head linear_num_ lightning_ rwkv",
    "convolution layers": "conv_kernel",
    "attention to selected tokens": "index_topk sparse_attention",
    "attention to compressed tokens": "compress_ratio",
    "layers that share their cache": "kv_shared_layers cla_share_factor cross_layer_attention",
    "embeddings per layer": "hidden_size_per_layer_input",
    "embeddings of n-grams": "ngram_vocab",
    "alternating updates": "altup",
    "several residual streams": "hyper_connection hc_mult",
    "chunked attention": "attention_chunk_size",
    "layers of different shapes": "block_configs",
    "experts that compute nothing": "zero_expert_num",
    "layers that run several times": "total_ut_steps num_loops",
}

#: The same of sizes of experts, where a family has none.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def is_off(value: Any) -> bool:
    """Whether a value turns its key's feature off: null, false, 0, a factor of 1, or nothing."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, float):
        return value in (0.0, 1.0)
    return value == 0 if isinstance(value, int) else isinstance(value, str | list | tuple | dict) and not value


@functools.cache
def _pattern(ordinary: bool) -> list[tuple[re.Pattern[str], str]]:
    lists = ORDINARY if ordinary else IRRELEVANT
    return [(re.compile("|".join(map(translate, names.split()))), reason) for reason, names in lists.items()]


def irrelevance(key: str, *, ordinary: bool = False) -> str | None:
    """Why a key cannot change what a step costs; None: it may. Args: ordinary: in a family that nobody knows."""
    return next((reason for names, reason in _pattern(ordinary) if names.fullmatch(key)), None)


def announced(raw: Mapping[str, Any], modelled: tuple[str, ...] = (), *, experts: bool = True) -> str | None:
    """What a parsed config.json announces that is not modelled, behind the key that does; None: nothing.

    Args:
        modelled: beginnings of keys that are.
        experts: whether the family has any.
    """
    for key, value in raw.items():
        if is_off(value) or not isinstance(key, str) or key.startswith(modelled):
            continue
        for feature, parts in _UNMODELLED.items():
            if any(part in key for part in parts.split()):
                return f"{key} is {shown(value)}: {feature}"
        if not experts and key in _EXPERTS and value != 1:
            return f"{key} is {shown(value)}: experts in a family without any"
        if key == "attn_type_list" and isinstance(value, list) and set(map(str, value)) != {"1"}:
            return f"{key} is {shown(value)}: linear attention"
    return None


def keys_of(family: Family) -> set[str]:
    """Keys that a family's row names."""
    keys = {*family.defaults, *family.must_equal}
    keys |= {spelling for others in family.spellings.values() for spelling in others}
    if (running := family.running) is not None:
        keys |= {*running.must_equal}
        keys |= {setting.key for setting in running.computation.values() if isinstance(setting, Setting)}
    return keys


def unknown_keys(raw: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Keys of a known family's file that nothing reads and no list has, and whose value is no switch that is off."""
    known = {*read, "attn_type_list"}
    return [k for k, v in raw.items() if isinstance(k, str) and k not in known and not is_off(v) and not irrelevance(k)]
