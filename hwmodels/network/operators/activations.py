"""Activations that a step moves off chip, per operator.

16-bit, read once and written once by each operator. q, k and v read their input together, and so do gate and up; the gated
product is formed on chip and written once; rotary embedding and the norm of queries and keys ride along with the
projections; "o" and "down" add the residual stream, which they read and write. Inputs of experts are gathered per choice,
their outputs are written per choice, read again and added up.
"""

from __future__ import annotations

from hwmodels.network.architecture import Architecture, attention_layers, attention_shape, linear_shape
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.scalars import Leaf, either
from hwmodels.numerics.units import BITS_PER_BYTE

ACTIVATION_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE

#: Square, accumulate, multiply by the inverse root, multiply by the scale.
NORM_FLOPS_PER_ELEMENT = 4.0


def activation_bytes(
    architecture: Architecture, *, rows: Leaf, logit_rows: Leaf, choices_per_row: Leaf
) -> dict[str, Leaf]:
    """Operator -> bytes, "*b", of a step over `rows` tokens of all sequences together, `logit_rows` of them with logits.

    `choices_per_row`: "*b", of routed experts that are computed here.
    """
    a, shape, linear = architecture, attention_shape(architecture), linear_shape(architecture)
    latent = a.kv_lora_rank > 0
    hidden, gate = a.hidden_size, a.attention_gate * shape.output_size
    first_query = either(a.q_lora_rank > 0, a.q_lora_rank, shape.query_size)
    layers, cached, linear_layers = (rows * n for n in (a.num_layers, attention_layers(a), a.num_linear_layers))
    projected = linear.convolved + linear.values + 2.0 * a.linear_value_heads
    dense, moe = rows * (a.num_layers - a.num_moe_layers), rows * a.num_moe_layers
    shared, choices = either(a.shared_intermediate_size > 0, moe, 0.0), moe * choices_per_row
    elements = {
        "embed": rows * hidden,
        "qkv": cached * (hidden + first_query + gate) + linear_layers * (hidden + projected),
        "latent": either(latent, cached * (a.q_lora_rank + shape.query_size), 0.0),
        "attention": cached * (shape.query_size + gate + shape.output_size),
        "linear_attention": linear_layers * (projected + linear.values),
        "o": cached * shape.output_size + linear_layers * linear.values + 2.0 * hidden * layers,
        "gate_up": dense * (hidden + a.intermediate_size),
        "down": dense * (a.intermediate_size + 2.0 * hidden),
        "router": moe * (hidden + a.num_experts),
        "expert_gate_up": choices * (hidden + a.expert_intermediate_size),
        "expert_down": choices * (a.expert_intermediate_size + 2.0 * hidden) + 2.0 * moe * hidden,
        "shared_gate_up": shared * (hidden + a.shared_intermediate_size),
        "shared_down": shared * (a.shared_intermediate_size + 2.0 * hidden),
        "norm": 2.0 * hidden * (a.norms_per_layer * layers + logit_rows),
        "lm_head": logit_rows * (hidden + a.vocab_size),
    }
    return {name: count * ACTIVATION_BYTES for name, count in elements.items()}


def norm_flops(architecture: Architecture, *, rows: Leaf, logit_rows: Leaf) -> Leaf:
    """FLOPs of all norms of a step, "*b"."""
    a = architecture
    heads = a.qk_norm * (a.num_heads + a.num_kv_heads) * a.head_dim
    low_rank = either(a.kv_lora_rank > 0, a.kv_lora_rank + a.q_lora_rank, 0.0)
    per_row = a.num_layers * a.norms_per_layer * a.hidden_size + attention_layers(a) * (heads + low_rank)
    per_row += a.num_linear_layers * linear_shape(a).values
    return NORM_FLOPS_PER_ELEMENT * (rows * per_row + logit_rows * a.hidden_size)
