"""Which weights a step reads, by operator and kind.

Weights are read once per step, whatever the batch; the embedding only by the row. A tied head is read as a head. Of the
routed experts, those are read that at least one token chooses.
"""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels.network.architecture import Architecture, attention_layers, attention_shape, linear_shape, parameters
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators.work import EXPERT_OPERATORS
from hwmodels.numerics.scalars import Leaf, either


def weights_read(architecture: Architecture, rows: Leaf, touched: Leaf) -> dict[str, dict[str, Leaf]]:
    """Operator -> kind -> weights, "*b", that a step reads.

    Args:
        architecture: leaves "*b".
        rows: "*b", tokens of all sequences together.
        touched: "*b", routed experts of a layer that at least one of them chooses.
    """
    a = architecture
    stored, shape = parameters(a), attention_shape(a)
    layers = attention_layers(a)
    second_query = layers * a.q_lora_rank * shape.query_size
    second_keys = layers * a.kv_lora_rank * a.num_heads * a.head_dim
    linear_values = a.num_linear_layers * a.hidden_size * linear_shape(a).values
    second_values = either(a.kv_lora_rank > 0, stored["v"] - linear_values, 0.0)
    touched_share = touched / either(a.num_experts > 0, a.num_experts, 1.0)
    shared_down = stored["shared"] / (2.0 + a.gated_ffn)
    return {
        "embed": {"embed": rows * a.hidden_size * either(a.learned_positions > 0, 2.0, 1.0)},
        "qkv": {
            "q": stored["q"] - second_query,
            "k": stored["k"] - second_keys,
            "v": stored["v"] - second_values,
        },
        "latent": {"q": second_query, "k": second_keys, "v": second_values},
        "o": {"o": stored["o"]},
        "gate_up": {"gate": stored["gate"], "up": stored["up"]},
        "down": {"down": stored["down"]},
        "router": {"router": stored["router"]},
        "expert_gate_up": {kind: touched_share * stored[kind] for kind in ("expert_gate", "expert_up")},
        "expert_down": {"expert_down": touched_share * stored["expert_down"]},
        "shared_gate_up": {"shared": stored["shared"] - shared_down},
        "shared_down": {"shared": shared_down},
        "norm": {"norm": stored["norm"]},
        "lm_head": {"lm_head": a.vocab_size * a.hidden_size},
    }


def coded_tensors(
    read: Mapping[str, Mapping[str, Leaf]], bits: Mapping[str, Leaf], launches: Mapping[str, Leaf], touched: Leaf
) -> dict[str, Leaf]:
    """Operator -> tensors, "*b", that are read in fewer than 16 bits: one of each kind and launch, or of each touched expert.

    Rows of an embedding are none: nothing is read to the end of its tensor.

    Args:
        read: of `weights_read`.
        bits: kind -> "*b".
        launches: operator -> "*b".
        touched: "*b", routed experts of a layer.
    """
    return {
        name: launches[name]
        * (touched if name in EXPERT_OPERATORS else 1.0)
        * sum(either((bits[kind] < UNCOMPRESSED_BITS) & (count > 0), 1.0, 0.0) for kind, count in kinds.items())
        for name, kinds in read.items()
        if name != "embed"
    }
