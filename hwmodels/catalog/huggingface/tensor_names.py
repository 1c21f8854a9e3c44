"""What checkpoints call the parameters of a decoder: names that several families share."""

from __future__ import annotations

__all__ = ["LLAMA_TENSORS"]

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
    **{f"{kind}_bias": f"{_ATTENTION}{kind}_proj.bias" for kind in ("q", "k", "v")},
    **{f"{kind}_norm": f"{_ATTENTION}{kind}_norm.weight" for kind in ("q", "k")},
    **{kind: f"{_LAYER}mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")},
}
