"""A mixture of routed experts, with or without shared ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.networks import ExpertSizes
from jaxspec.models.blocks.interface import FeedForwardResult, StepInput
from jaxspec.models.dispatch import through_experts
from jaxspec.models.dots import dot_rows
from jaxspec.models.matrix import matrix_of
from jaxspec.models.norms import ACTIVATIONS
from jaxspec.models.rounded_inputs import rounded_input
from jaxspec.models.router import route
from jaxspec.models.sizes import DecoderSizes

__all__ = ["Experts"]

#: Steepness of the gate of GPT-OSS.
_CLAMPED_STEEPNESS = 1.702


@dataclasses.dataclass(frozen=True)
class Experts:
    """Each token goes through the experts that a router chooses for it, and through the shared expert, where there is one.

    Every expert has three matrices, down(activation(gate x) * up x). `DecoderSizes.experts` has the sizes and the router's
    rule. `shared_router`, a single row, gives the logit of the gate behind the shared expert, where it has one (Qwen2-MoE).

    Source: Shazeer et al. 2017, arXiv:1701.06538; shared experts: Dai et al. 2024, arXiv:2401.06066.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        own, hidden = _own(sizes), sizes.hidden_size
        into, out = (own.num_experts, own.inner_size, hidden), (own.num_experts, hidden, own.inner_size)
        found = {"router": (own.num_experts, hidden), "expert_gate": into, "expert_up": into, "expert_down": out}
        if own.shared_size:
            into, out = (own.shared_size, hidden), (hidden, own.shared_size)
            found |= {"shared_gate": into, "shared_up": into, "shared_down": out}
            found |= {"shared_router": (1, hidden)} if own.shared_gated else {}
        return found

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("expert_down", "shared_down")

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int | tuple[int, ...], float]]:
        """See `Block`."""
        own = _own(sizes)
        found: dict[str, tuple[int | tuple[int, ...], float]] = {}
        if own.router_bias:
            found["router_bias"] = (own.num_experts, 0.0)
        if own.correction_bias:
            found["correction_bias"] = (own.num_experts, 0.0)
        if own.expert_biases:
            rows = {"gate": own.inner_size, "up": own.inner_size, "down": sizes.hidden_size}
            found |= {f"expert_{kind}_bias": ((own.num_experts, length), 0.0) for kind, length in rows.items()}
        return found

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Any],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> FeedForwardResult:
        """See `FeedForward`. The router computes in float32, or in a wider type that comes."""
        own = _own(sizes)
        wide = jnp.float64 if normed.dtype == jnp.float64 else jnp.float32
        logits = dot_rows(normed.astype(wide), weights["router"].astype(wide))
        if own.router_bias:
            logits = logits + jax.lax.broadcast_to_rank(weights["router_bias"].astype(wide), logits.ndim)
        correction = weights["correction_bias"].astype(wide) if own.correction_bias else None
        routed = route(logits, own, correction=correction, allowed=step.allowed_experts, more=step.more_experts)
        used = routed.choices.used
        rows = normed.reshape(-1, sizes.hidden_size)
        one = partial(_expert, sizes=sizes, dot_dtype=step.dot_dtype)
        stacks = {name: leaf for name, leaf in weights.items() if name.startswith("expert_")}
        made, inner = through_experts(one, stacks, rows, used.reshape(len(rows), -1), own.num_experts)
        weighed = made * routed.weights.reshape(len(rows), -1, 1).astype(made.dtype)
        output = weighed.sum(axis=1).reshape(normed.shape)
        inputs = {"expert_gate_up": normed, "expert_down": inner.reshape(len(normed), -1, own.inner_size)}
        if own.shared_size:
            product = lambda x, kind: _product(x, weights, kind, sizes, step.dot_dtype)
            shared = ACTIVATIONS[sizes.activation](product(normed, "shared_gate")) * product(normed, "shared_up")
            of_shared = product(shared, "shared_down")
            if own.shared_gated:
                gate = jax.nn.sigmoid(dot_rows(normed.astype(wide), weights["shared_router"].astype(wide)))
                of_shared = of_shared * gate.astype(of_shared.dtype)
            output = output + of_shared
            inputs |= {"shared_gate_up": normed, "shared_down": shared}
        return FeedForwardResult(output, inputs, routed.choices)


def _own(sizes: DecoderSizes) -> ExpertSizes:
    if sizes.experts is None:
        raise ValueError("experts is None, and a layer has a mixture of experts; give their sizes")
    return sizes.experts


def _product(x: Array, weights: Mapping[str, Any], kind: str, sizes: DecoderSizes, dot_dtype: Any) -> Array:
    # The matrix in the type that it is stored in: a matrix unit may multiply by it as it is.
    return matrix_of(weights[kind]).dot(rounded_input(x, sizes.rounded_inputs, weights, kind), dot_dtype)


def _expert(
    weights: Mapping[str, Array], rows: Float[Array, "row hidden"], *, sizes: DecoderSizes, dot_dtype: Any
) -> tuple[Float[Array, "row hidden"], Float[Array, "row inner"]]:
    """One expert's output, and what enters its last matrix."""

    def product(x: Array, kind: str) -> Array:
        found = _product(x, weights, f"expert_{kind}", sizes, dot_dtype)
        biased = _own(sizes).expert_biases
        return found + weights[f"expert_{kind}_bias"].astype(x.dtype)[None] if biased else found

    gate, up, limit = product(rows, "gate"), product(rows, "up"), _own(sizes).clamp
    if limit is None:
        inner = ACTIVATIONS[sizes.activation](gate) * up
    else:
        gate = jnp.minimum(gate, limit)
        inner = gate * jax.nn.sigmoid(_CLAMPED_STEEPNESS * gate) * (jnp.clip(up, -limit, limit) + 1)
    return product(inner, "down"), inner
