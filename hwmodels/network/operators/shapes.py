"""How often each operator of a step starts, and the sizes of the products that it is."""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels.network.architecture import Architecture, attention_layers, attention_shape, linear_shape
from hwmodels.network.operators.attention import AttentionWork
from hwmodels.numerics.folds import settled
from hwmodels.numerics.scalars import Leaf, either

__all__ = ["launches_of", "one_for_none", "product_shapes"]


def launches_of(a: Architecture) -> dict[str, Leaf]:
    """Operator -> how often it starts in a step, "*b"; leaves of the architecture "*b"."""
    dense = a.num_layers - a.num_moe_layers
    shared = either(a.shared_intermediate_size > 0, a.num_moe_layers, 0.0)
    return (
        dict.fromkeys(("qkv", "o"), a.num_layers)
        | {"attention": attention_layers(a), "linear_attention": a.num_linear_layers}
        | {"embed": 1.0, "norm": a.norms_per_layer * a.num_layers + 1.0, "lm_head": 1.0}
        | {"latent": either(a.kv_lora_rank > 0, attention_layers(a), 0.0)}
        | dict.fromkeys(("gate_up", "down"), dense)
        | dict.fromkeys(("router", "expert_gate_up", "expert_down"), a.num_moe_layers)
        | dict.fromkeys(("shared_gate_up", "shared_down"), shared)
    )


def product_shapes(
    a: Architecture,
    attention: AttentionWork,
    elements: Mapping[str, Leaf],
    launches: Mapping[str, Leaf],
    *,
    rows: Leaf,
    logit_rows: Leaf,
    expert_rows: Leaf,
    touched: Leaf,
) -> dict[str, tuple[Leaf, Leaf, Leaf, Leaf]]:
    """Operator -> (m, k, n, products), "*b"; m, k and n are 1 where an operator is absent.

    Args:
        a: leaves "*b".
        attention: of the same step.
        elements: operator -> weights that it reads in the step, "*b".
        launches: of `launches_of`.
        rows, logit_rows, expert_rows: "*b", tokens that matrices, the head and each chosen expert multiply.
        touched: "*b", experts of a layer that are chosen.
    """
    inner = {
        "qkv": a.hidden_size,
        "latent": a.kv_lora_rank,
        "o": _mixed_output(a),
        "gate_up": a.hidden_size,
        "down": a.intermediate_size,
        "router": a.hidden_size,
        "expert_gate_up": a.hidden_size,
        "expert_down": a.expert_intermediate_size,
        "shared_gate_up": a.hidden_size,
        "shared_down": a.shared_intermediate_size,
        "lm_head": a.hidden_size,
    }
    outer_rows: dict[str, Leaf] = dict.fromkeys(inner, rows) | {
        "expert_gate_up": expert_rows,
        "expert_down": expert_rows,
        "lm_head": logit_rows,
    }
    shapes: dict[str, tuple[Leaf, Leaf, Leaf, Leaf]] = {}
    for name, k in inner.items():
        products = touched if name.startswith("expert") else 1.0
        # All weights of the operator over its launches, products and rows of weights: the columns of one product.
        columns = settled(elements[name] / (one_for_none(launches[name]) * one_for_none(products) * one_for_none(k)))
        present = (launches[name] > 0) & (columns > 0)
        shapes[name] = (
            either(present, outer_rows[name], 1.0),
            either(present, k, 1.0),
            either(present, columns, 1.0),
            either(present, products, 0.0),
        )
    shapes["attention"] = (
        attention.queries_per_head,
        attention.depth,
        attention.visible_tokens,
        attention.products,
    )
    return shapes


def one_for_none(value: Leaf) -> Leaf:
    """1 instead of 0, as a divisor of what is 0 as well."""
    return either(value > 0, value, 1.0)


def _mixed_output(a: Architecture) -> Leaf:
    """Elements that enter the projection "o", on average over layers of both kinds."""
    linear = a.num_linear_layers / a.num_layers
    return attention_shape(a).output_size * (1.0 - linear) + linear_shape(a).values * linear
