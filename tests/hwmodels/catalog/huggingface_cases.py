"""Counted networks and small configurations of Hugging Face families."""

import json
from pathlib import Path

from hwmodels import parameters

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
