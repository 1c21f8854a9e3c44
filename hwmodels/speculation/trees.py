"""Draft trees: expected tokens of a cycle, for any topology; see `hwmodels.speculation.plan` for what a tree is."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.numerics.scalars import as_float
from hwmodels.speculation.plan import ROOT, node_depths

__all__ = ["expected_tree_tokens"]


def expected_tree_tokens(
    parent: Sequence[int] | Int[np.ndarray, " node"], node_acceptance: Float[Array, "*b node"]
) -> Float[Array, "*b"]:
    """Expected tokens per cycle: 1 plus, for each node, the probability that it and all above it are accepted.

    Args:
        parent: static "node".
        node_acceptance: "*b node", in [0, 1]; P(node accepted | its parent accepted). At most one child of a parent is
            accepted, so that those of siblings sum to at most 1.
    Raises:
        ValueError: a parent that is not an earlier node, or another number of nodes.
    """
    node_depths(parent)  # refuses what is no tree
    chances = jnp.asarray(as_float(node_acceptance))
    if chances.ndim == 0 or chances.shape[-1] != len(parent):
        raise ValueError(f"node_acceptance has shape {chances.shape}; its last axis must be the {len(parent)} nodes")
    reached: list[Array] = []
    for node, above in enumerate(np.asarray(parent).tolist()):
        reached.append(chances[..., node] * (reached[above] if above != ROOT else 1.0))
    return 1.0 + jnp.sum(jnp.stack(reached, axis=-1), axis=-1)
