"""What checkpoints call the parameters of a decoder: names that several families share."""

from __future__ import annotations

__all__ = [
    "APERTUS_TENSORS",
    "ERNIE_MOE_TENSORS",
    "EXPERT_TENSORS",
    "FUSED_ALONE",
    "FUSED_EXPERTS",
    "FUSED_GATE",
    "FUSED_GRANITE_EXPERTS",
    "FUSED_LATENT",
    "FUSED_LFM2",
    "FUSED_LINEAR",
    "FUSED_QKV",
    "GEMMA4_TENSORS",
    "GLM4_POST_NORMS",
    "GPT_OSS_TENSORS",
    "GRANITE_EXPERT_TENSORS",
    "HUNYUAN_MOE_TENSORS",
    "HUNYUAN_TENSORS",
    "INDEXED_LATENT_TENSORS",
    "LATENT_TENSORS",
    "LFM2_TENSORS",
    "LLAMA_NORM_BIASES",
    "LLAMA_TENSORS",
    "MINIMAX_M3_TENSORS",
    "MIXTRAL_TENSORS",
    "NEMOTRON_TENSORS",
    "OPT_TENSORS",
    "QWEN_HYBRID_EXPERT_TENSORS",
    "QWEN_HYBRID_TENSORS",
    "QWEN_MOE_TENSORS",
    "QWEN_NEXT_TENSORS",
    "SANDWICH_TENSORS",
    "SHARED_ALONE",
    "STACKED_EXPERTS",
    "STARCODER_TENSORS",
]

_LAYER = "model.layers.{layer}."
_ATTENTION = _LAYER + "self_attn."

#: Parameter -> tensor of Llama's checkpoints, and of all that follow them; which of these a network has, its blocks say.
LLAMA_TENSORS = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
    "attention_norm": _LAYER + "input_layernorm.weight",
    "mlp_norm": _LAYER + "post_attention_layernorm.weight",
    **{kind: f"{_ATTENTION}{kind}_proj.weight" for kind in ("q", "k", "v", "o")},
    **{f"{kind}_bias": f"{_ATTENTION}{kind}_proj.bias" for kind in ("q", "k", "v", "o")},
    **{f"{kind}_norm": f"{_ATTENTION}{kind}_norm.weight" for kind in ("q", "k")},
    **{kind: f"{_LAYER}mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")},
    **{f"{kind}_bias": f"{_LAYER}mlp.{kind}_proj.bias" for kind in ("gate", "up", "down")},
}

#: Of Hunyuan, whose norms of queries and keys have names of their own.
HUNYUAN_TENSORS = LLAMA_TENSORS | {
    "q_norm": _ATTENTION + "query_layernorm.weight",
    "k_norm": _ATTENTION + "key_layernorm.weight",
}

#: Of Apertus, whose activation has numbers of its own in every layer.
APERTUS_TENSORS = LLAMA_TENSORS | {
    "attention_norm": _LAYER + "attention_layernorm.weight",
    "mlp_norm": _LAYER + "feedforward_layernorm.weight",
    **{f"xielu_{name}": f"{_LAYER}mlp.act_fn.{name}" for name in ("alpha_p", "alpha_n", "beta", "eps")},
}

#: Biases of layer norms under the same names.
LLAMA_NORM_BIASES = {
    f"{name}_bias": LLAMA_TENSORS[name].removesuffix("weight") + "bias"
    for name in ("attention_norm", "mlp_norm", "final_norm")
}

#: Of StarCoder2, whose two feed-forward matrices have GPT-2's names.
STARCODER_TENSORS = {
    **LLAMA_TENSORS,
    **LLAMA_NORM_BIASES,
    **{kind: f"{_LAYER}mlp.{name}.weight" for kind, name in (("up", "c_fc"), ("down", "c_proj"))},
    **{f"{kind}_bias": f"{_LAYER}mlp.{name}.bias" for kind, name in (("up", "c_fc"), ("down", "c_proj"))},
}

#: Of networks with experts, each expert's matrix a tensor of its own: routers, and experts shared by all tokens.
EXPERT_TENSORS = LLAMA_TENSORS | {
    "router": _LAYER + "mlp.gate.weight",
    "correction_bias": _LAYER + "mlp.gate.e_score_correction_bias",
    **{f"expert_{kind}": f"{_LAYER}mlp.experts.{{expert}}.{kind}_proj.weight" for kind in ("gate", "up", "down")},
    **{f"shared_{kind}": f"{_LAYER}mlp.shared_experts.{kind}_proj.weight" for kind in ("gate", "up", "down")},
}

#: The same of Hunyuan.
HUNYUAN_MOE_TENSORS = (
    EXPERT_TENSORS
    | {name: HUNYUAN_TENSORS[name] for name in ("q_norm", "k_norm")}
    | {"router": _LAYER + "mlp.gate.wg.weight"}
    | {f"shared_{kind}": f"{_LAYER}mlp.shared_mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")}
)

#: The same of ERNIE 4.5, whose corrections are a matrix of one row.
ERNIE_MOE_TENSORS = EXPERT_TENSORS | {"correction_bias": _LAYER + "mlp.moe_statics.e_score_correction_bias"}

#: The same with latent attention.
LATENT_TENSORS = EXPERT_TENSORS | {
    "q_down": _ATTENTION + "q_a_proj.weight",
    "q_down_bias": _ATTENTION + "q_a_proj.bias",
    "q_down_norm": _ATTENTION + "q_a_layernorm.weight",
    "q_up": _ATTENTION + "q_b_proj.weight",
    "kv_down": _ATTENTION + "kv_a_proj_with_mqa.weight",
    "kv_down_bias": _ATTENTION + "kv_a_proj_with_mqa.bias",
    "kv_down_norm": _ATTENTION + "kv_a_layernorm.weight",
    "k_up": _ATTENTION + "kv_b_proj.weight",
    "v_up": _ATTENTION + "kv_b_proj.weight",
}

#: Of one head after the other, the rows that make its keys and those that make its values.
FUSED_LATENT = {_ATTENTION + "kv_b_proj.weight": ("k_up", "v_up")}

_STACKED = _LAYER + "mlp.experts."
#: Of gpt-oss, all experts of a layer in one tensor: (expert, input, output).
GPT_OSS_TENSORS = LLAMA_TENSORS | {
    "sinks": _ATTENTION + "sinks",
    "router": _LAYER + "mlp.router.weight",
    "router_bias": _LAYER + "mlp.router.bias",
    **dict.fromkeys(("expert_gate", "expert_up"), _STACKED + "gate_up_proj"),
    "expert_down": _STACKED + "down_proj",
    **dict.fromkeys(("expert_gate_bias", "expert_up_bias"), _STACKED + "gate_up_proj_bias"),
    "expert_down_bias": _STACKED + "down_proj_bias",
}

#: Rows of gate and up in turn, in the matrices and in their biases.
FUSED_EXPERTS = {
    _STACKED + "gate_up_proj": ("expert_gate", "expert_up"),
    _STACKED + "gate_up_proj_bias": ("expert_gate_bias", "expert_up_bias"),
}

_MIXTRAL = _LAYER + "block_sparse_moe."
#: Mixtral's own names of the same, which MiniMax-M2 has too.
MIXTRAL_TENSORS = LLAMA_TENSORS | {
    "router": _MIXTRAL + "gate.weight",
    "correction_bias": _MIXTRAL + "e_score_correction_bias",  # of MiniMax-M2
    **{
        f"expert_{kind}": f"{_MIXTRAL}experts.{{expert}}.{name}.weight"
        for kind, name in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
    },
}

_SHARED_MLP = _LAYER + "shared_mlp."
#: Of Granite, all experts of a layer in one tensor: (expert, output, input).
GRANITE_EXPERT_TENSORS = LLAMA_TENSORS | {
    "router": _MIXTRAL + "router.layer.weight",
    **dict.fromkeys(("expert_gate", "expert_up"), _MIXTRAL + "input_linear.weight"),
    "expert_down": _MIXTRAL + "output_linear.weight",
    **dict.fromkeys(("shared_gate", "shared_up"), _SHARED_MLP + "input_linear.weight"),
    "shared_down": _SHARED_MLP + "output_linear.weight",
}
#: In its tensors gates are before what they gate.
FUSED_GRANITE_EXPERTS = {
    _MIXTRAL + "input_linear.weight": ("expert_gate", "expert_up"),
    _SHARED_MLP + "input_linear.weight": ("shared_gate", "shared_up"),
}

#: Of Granite 4 without experts, the same names of the only feed-forward network.
SHARED_ALONE = {kind: GRANITE_EXPERT_TENSORS[f"shared_{kind}"] for kind in ("gate", "up", "down")}
#: Gates of it are before what they gate.
FUSED_ALONE = {_SHARED_MLP + "input_linear.weight": ("gate", "up")}

_LINEAR = _LAYER + "linear_attn."
#: Of Qwen3.5: gated attention, and gated delta nets in the other layers.
QWEN_HYBRID_TENSORS = LLAMA_TENSORS | {
    **{f"in_{part}": f"{_LINEAR}in_proj_{part}.weight" for part in ("qkv", "z", "b", "a")},
    "conv": _LINEAR + "conv1d.weight",
    "out": _LINEAR + "out_proj.weight",
    "dt_bias": _LINEAR + "dt_bias",
    "a_log": _LINEAR + "A_log",
    "out_norm": _LINEAR + "norm.weight",
}

_SHARED = {
    **{f"shared_{kind}": f"{_LAYER}mlp.shared_expert.{kind}_proj.weight" for kind in ("gate", "up", "down")},
    "shared_router": _LAYER + "mlp.shared_expert_gate.weight",
}
#: Of Qwen2 with experts.
QWEN_MOE_TENSORS = EXPERT_TENSORS | _SHARED
#: Of Qwen3.5 with experts, each expert's matrices apart, as transformers writes them.
QWEN_HYBRID_EXPERT_TENSORS = EXPERT_TENSORS | QWEN_HYBRID_TENSORS | _SHARED
#: Of its releases, all experts of a layer in one tensor: (expert, output, input), gates before what they gate.
STACKED_EXPERTS = {_STACKED + "gate_up_proj": ("expert_gate", "expert_up"), _STACKED + "down_proj": ("expert_down",)}

#: Of Qwen3-Next, the projections of linear attention together.
QWEN_NEXT_TENSORS = (
    QWEN_HYBRID_EXPERT_TENSORS
    | dict.fromkeys(("in_qkv", "in_z"), _LINEAR + "in_proj_qkvz.weight")
    | dict.fromkeys(("in_b", "in_a"), _LINEAR + "in_proj_ba.weight")
)
#: Of one key head after the other, the rows of its queries, keys, values and gates, and of its value heads' rates.
FUSED_LINEAR = {_LINEAR + "in_proj_qkvz.weight": ("in_qkv", "in_z"), _LINEAR + "in_proj_ba.weight": ("in_b", "in_a")}

_FEED_FORWARD, _CONV = _LAYER + "feed_forward.", _LAYER + "conv."
_GATED = {"gate": "w1", "up": "w3", "down": "w2"}
#: Of LFM2, with experts or without: short convolutions, and attention in the other layers.
LFM2_TENSORS = LLAMA_TENSORS | {
    "final_norm": "model.embedding_norm.weight",
    "attention_norm": _LAYER + "operator_norm.weight",
    "mlp_norm": _LAYER + "ffn_norm.weight",
    "o": _ATTENTION + "out_proj.weight",
    **{f"{kind}_norm": f"{_ATTENTION}{kind}_layernorm.weight" for kind in ("q", "k")},
    **{kind: f"{_FEED_FORWARD}{name}.weight" for kind, name in _GATED.items()},
    **{f"expert_{kind}": f"{_FEED_FORWARD}experts.{{expert}}.{name}.weight" for kind, name in _GATED.items()},
    "router": _FEED_FORWARD + "gate.weight",
    "correction_bias": _FEED_FORWARD + "expert_bias",
    **dict.fromkeys(("in_z", "in_qkv"), _CONV + "in_proj.weight"),
    "conv": _CONV + "conv.weight",
    "out": _CONV + "out_proj.weight",
}
#: Both gates, then channels.
FUSED_LFM2 = {_CONV + "in_proj.weight": ("in_z", "in_qkv")}

#: Of networks that also norm what leaves the blocks: the norm called after attention is then right after it.
SANDWICH_TENSORS = LLAMA_TENSORS | {
    "attention_post_norm": _LAYER + "post_attention_layernorm.weight",
    "mlp_norm": _LAYER + "pre_feedforward_layernorm.weight",
    "mlp_post_norm": _LAYER + "post_feedforward_layernorm.weight",
}

#: GLM-4's names of the norms after the blocks, beside Llama's of those before them.
GLM4_POST_NORMS = {
    "attention_post_norm": _LAYER + "post_self_attn_layernorm.weight",
    "mlp_post_norm": _LAYER + "post_mlp_layernorm.weight",
}

#: With DeepSeek's index of sparse attention; of networks with it and of those below only the matrices.
INDEXED_LATENT_TENSORS = LATENT_TENSORS | {
    "index_q": _ATTENTION + "indexer.wq_b.weight",
    "index_k": _ATTENTION + "indexer.wk.weight",
}
#: Of MiniMax-M3.
MINIMAX_M3_TENSORS = MIXTRAL_TENSORS | {
    **{f"shared_{kind}": f"{_MIXTRAL}shared_experts.{kind}_proj.weight" for kind in ("gate", "up", "down")},
    **{f"index_{kind}": f"{_ATTENTION}index_{kind}_proj.weight" for kind in ("q", "k")},
}
#: Of Gemma 4, whose dense network stands beside the experts.
GEMMA4_TENSORS = EXPERT_TENSORS | {
    **{f"expert_{kind}": f"{_LAYER}experts.{{expert}}.{kind}_proj.weight" for kind in ("gate", "up", "down")},
    **{f"shared_{kind}": EXPERT_TENSORS[kind] for kind in ("gate", "up", "down")},
}
_MIXER = "backbone.layers.{layer}.mixer."
#: Of Nemotron-H.
NEMOTRON_TENSORS = {
    **{kind: f"{_MIXER}{kind}_proj.weight" for kind in ("q", "k", "v", "o", "up", "down")},
    **dict.fromkeys(("in_qkv", "in_z"), _MIXER + "in_proj.weight"),
    "out": _MIXER + "out_proj.weight",
    **{f"expert_{kind}": f"{_MIXER}experts.{{expert}}.{kind}_proj.weight" for kind in ("up", "down")},
    **{f"shared_{kind}": f"{_MIXER}shared_experts.{kind}_proj.weight" for kind in ("up", "down")},
}

#: Tensor -> the parameters that it holds one below the other.
FUSED_QKV = {_ATTENTION + "qkv_proj.weight": ("q", "k", "v")}
#: The same of the two matrices after the norm of the feed-forward network.
FUSED_GATE = {_LAYER + "mlp.gate_up_proj.weight": ("gate", "up")}

_OPT_LAYER = "model.decoder.layers.{layer}."
_OPT_MATRICES = {
    **{kind: f"{_OPT_LAYER}self_attn.{kind}_proj" for kind in ("q", "k", "v")},
    "o": _OPT_LAYER + "self_attn.out_proj",
    "up": _OPT_LAYER + "fc1",
    "down": _OPT_LAYER + "fc2",
}
_OPT_NORMS = {
    "final_norm": "model.decoder.final_layer_norm",
    "attention_norm": _OPT_LAYER + "self_attn_layer_norm",
    "mlp_norm": _OPT_LAYER + "final_layer_norm",
}

#: Parameter -> tensor of OPT's checkpoints.
OPT_TENSORS = {
    "embed": "model.decoder.embed_tokens.weight",
    "position_embed": "model.decoder.embed_positions.weight",
    "lm_head": "lm_head.weight",
    **{name: f"{stem}.weight" for name, stem in (_OPT_NORMS | _OPT_MATRICES).items()},
    **{f"{name}_bias": f"{stem}.bias" for name, stem in (_OPT_NORMS | _OPT_MATRICES).items()},
}
