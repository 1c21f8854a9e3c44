"""Bits of a network's own matrices as bits of the kinds that an architecture has.

What the network that runs lacks is stored as its counterpart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwmodels import Architecture, Footprint, uniform_weight_bits
from hwmodels.network.architecture import attention_layers, attention_shape, linear_shape
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.scalars import Leaf, as_float
from jaxspec.compress.footprint import means_by_kind
from jaxspec.compress.head import HEAD

__all__ = ["priced_footprint"]

#: Matrices of a feed-forward network, dense or of an expert.
_FEED_FORWARD = ("gate", "up", "down")

#: Matrices of attention, and those of latent, then of linear attention that they count for.
_ATTENTION = {
    "q": ("q_up", "q_down", "in_qkv"),
    "k": ("kv_down", "k_up", "in_qkv"),
    "v": ("v_up", "in_qkv"),
    "o": ("out",),
}


def priced_footprint(measured: Footprint, architecture: Architecture | None = None) -> Footprint:
    """Means over layers by kind; embeddings, norms and routers stay at 16 bits, and so does a head that was not measured.

    What the network that runs lacks is stored as its counterpart: experts and shared experts as its dense feed-forward
    matrices, dense ones as its shared experts', or else its experts', and a gate as what it gates. Projections of linear
    attention count for those of attention, by their numbers of weights in the priced architecture.

    Args:
        measured: of the network that runs; leaves are " layer", those of the head single numbers.
        architecture: that is priced; None: matrices of all layers count alike.
    """

    def by_kind(bits: dict[str, Array]) -> dict[str, Any]:
        own = means_by_kind(bits)
        of = lambda *names: next(own[name] for name in names if name in own)
        dense = {part: of(part, f"shared_{part}", f"expert_{part}", "up") for part in _FEED_FORWARD}
        experts = {f"expert_{part}": own.get(f"expert_{part}", dense[part]) for part in _FEED_FORWARD}
        shared = sum(own.get(f"shared_{part}", dense[part]) for part in _FEED_FORWARD) / 3.0
        attention = {kind: of(kind, *others) for kind, others in _ATTENTION.items()}
        if "in_qkv" in own and architecture is not None:
            attention |= _with_linear(attention, own, architecture)
        elif "in_qkv" in own:
            both = {"q": ("q", "in_qkv", "in_z"), "k": ("k", "in_qkv"), "v": ("v", "in_qkv"), "o": ("o", "out")}
            together = lambda names: jnp.concatenate([jnp.asarray(bits[name]) for name in names if name in bits])
            attention |= {kind: jnp.mean(together(names)) for kind, names in both.items()}
        head = {HEAD: bits[HEAD]} if HEAD in bits else {}
        return uniform_weight_bits(16.0) | attention | dense | experts | {"shared": shared} | head

    return Footprint(
        draft_weight_bits=by_kind(measured.draft_weight_bits),
        target_weight_bits=by_kind(measured.target_weight_bits),
        draft_kv_bits=jnp.mean(measured.draft_kv_bits),
        target_kv_bits=jnp.mean(measured.target_kv_bits),
    )


def _with_linear(attention: Mapping[str, Any], own: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """Bits of attention's kinds over layers of both sorts; how much a head learns and forgets comes out of 16-bit matrices."""
    a = jax.tree.map(as_float, architecture)
    shape, linear = attention_shape(a), linear_shape(a)
    layers, linear_layers = attention_layers(a), a.num_linear_layers
    keys = a.num_kv_heads * a.head_dim
    queries = shape.query_size + a.attention_gate * shape.output_size
    rates = a.linear_rates * a.linear_value_heads

    def mean(kind: str, rows: Leaf, of_linear: Iterable[tuple[Leaf, Any]]) -> Any:
        parts = [(layers * rows, attention[kind]), *((linear_layers * each, bits) for each, bits in of_linear)]
        return sum(weight * bits for weight, bits in parts) / sum(weight for weight, _ in parts)

    queried = (linear.keys, own["in_qkv"]), (linear.values, own["in_z"]), (rates, UNCOMPRESSED_BITS)
    return {
        "q": mean("q", queries, queried),
        "k": mean("k", keys, ((linear.keys, own["in_qkv"]),)),
        "v": mean("v", keys, ((linear.values, own["in_qkv"]),)),
        "o": mean("o", shape.output_size, ((linear.values, own["out"]),)),
    }
