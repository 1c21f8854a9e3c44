"""The paper's objective for a draft, Eq. (2), beside the predicted speedup, on drafts measured on the embedded network.

J is acceptance over the bits that a draft step reads of weights and KV cache:

    J = alpha / (S_w (1 - w_p) (B - w_t) + S_kv (1 - kv_p) (B - kv_t)),

with S the numbers of elements, p the pruned shares, t the bits cut off, B = 16 (`objective_j`). It counts neither the bitmap
nor coded exponents, nor the verification, which costs the same for any draft. So it asks for fewer bits than speed does.

Drafts are those of Fig. 7 that lie on the paper's grid. Its search decides about the larger of weights and KV cache first: for
one sequence of this context these are the weights, and the cache is the target's own.

Source: Cassandra, VII-B.2, Eq. (2).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.papers.cassandra.units import printed_value
from hwmodels import (
    LAYER_MATRICES,
    DraftCost,
    Workload,
    catalog,
    chain_plan,
    kv_elements_per_token,
    parameters,
    price_cycle,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from jaxspec.compress.footprint import uniform
from jaxspec.tuning.compression_objective import left_bits, objective_j

__all__ = ["on_the_grid", "scored"]

#: What drafts are priced on and for.
DEVICE, ARCHITECTURE, CONTEXT_TOKENS = "rtx-4090", "llama-3.1-8b", 1024.0


def on_the_grid(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Drafts whose pruned share and cut bits are among those that the paper searches."""
    searched = functools.partial(printed_value, "algorithm_config", parameter="grid search")

    def points(name: str) -> np.ndarray:
        low, high, step = (searched(f"{name}_{end}") for end in ("min", "max", "step"))
        return low + step * np.arange(round((high - low) / step) + 1)

    prune, cut = points("pruning_ratio") / 100, points("truncation")
    among = lambda value, allowed: bool(np.isclose(value, allowed).any())
    return [row for row in rows if among(row["weight_prune"], prune) and among(row["cut_bits"], cut)]


def scored(rows: list[dict[str, float]], drafted: int) -> list[dict[str, Any]]:
    """Each draft with J, relative to the best, and its predicted speedup over 16-bit decoding; the best J first.

    Args:
        rows: of Fig. 7: weight_prune, cut_bits, bits_per_weight, alpha_fraction of `drafted` tokens.
    """
    architecture = catalog.architecture(ARCHITECTURE)
    stored = parameters(architecture)
    layer_weights = float(sum(stored[kind] for kind in LAYER_MATRICES))
    kv_values = CONTEXT_TOKENS * float(kv_elements_per_token(architecture))
    values = [
        float(
            objective_j(
                row["alpha_fraction"],
                [
                    (layer_weights, left_bits(row["weight_prune"], row["cut_bits"])),
                    (kv_values, left_bits(0.0, 0.0)),
                ],
            )
        )
        for row in rows
    ]
    column = lambda name: jnp.array([row[name] for row in rows], jnp.float32)
    cycle_s, plain_s = _seconds(*map(column, ("bits_per_weight", "weight_prune", "cut_bits")), jnp.float32(drafted))
    tokens = 1.0 + drafted * np.array([row["alpha_fraction"] for row in rows])
    speedup = tokens * np.asarray(plain_s) / np.asarray(cycle_s)
    found = [
        row | {"J": value / max(values), "speedup": float(one), "status": "predicted"}
        for row, value, one in zip(rows, values, speedup, strict=True)
    ]
    return sorted(found, key=lambda row: -row["J"])


@jax.jit
def _seconds(bits: Array, prune: Array, cut: Array, drafted: Array) -> tuple[Array, Array]:
    """Of a cycle, and of a step of autoregressive decoding in 16 bits, "draft"."""

    def one(bits: Array, prune: Array, cut: Array) -> tuple[Array, Array]:
        # A verification reads pruned values in 16 bits, and the bits that were cut off the others (V-A).
        target = bits + prune * UNCOMPRESSED_BITS + (1.0 - prune) * cut
        found = price_cycle(
            catalog.device(DEVICE),
            catalog.architecture(ARCHITECTURE),
            footprint=uniform(bits, target),
            draft_cost=DraftCost(),
            workload=Workload(context_tokens=CONTEXT_TOKENS),
            plan=chain_plan(drafted),
        )
        return found.total_s, found.baselines.bf16.cost.total_s

    return jax.vmap(one)(bits, prune, cut)
