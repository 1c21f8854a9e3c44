"""Drafts of all sizes side by side, chains or trees: what each costs as a plan, and what it gains by acceptance.

A chain is a tree of first choices. The chance of a node is the product along its path, so that a matrix of "how often a path
passes depth d and rank r" times log chances gives all nodes of all trees at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from hwmodels import Plan
from hwmodels.numerics.exact_products import EXACT, exact_matmul
from hwmodels.speculation.plan import ROOT, chain_plan, node_depths, plan_family, tree_plan
from jaxspec.trees.optimal_tree import optimal_tree, optimal_trees

__all__ = ["Family", "chain_family", "tree_family"]

#: Chances are kept off 0, whose logarithm has no slope.
_LEAST = 1e-9


@struct.dataclass
class Family:
    """Drafts to choose from.

    Attributes:
        plan: leaves "draft".
        passes: how often the path to a node passes each depth and rank.
        member: 1 where a node belongs to a draft.
        nodes: drafted tokens of each.
        shares: of what the first choice misses, by rank from the second on.
    """

    plan: Plan
    passes: Float[np.ndarray, "node depth rank"]
    member: Float[np.ndarray, "draft node"]
    nodes: Float[np.ndarray, " draft"]
    shares: Float[np.ndarray, " other"]

    @property
    def depth(self) -> int:
        """Deepest node."""
        return self.passes.shape[1]

    def tokens(self, conditional: Float[Array, " depth"]) -> Float[Array, " draft"]:
        """Expected tokens per cycle of each draft, bonus token included.

        Args:
            conditional: chance of the first choice at each depth, given that its parent is accepted.
        """
        others = (1.0 - conditional)[:, None] * jnp.asarray(self.shares)[None]
        chances = jnp.concatenate([conditional[:, None], others], axis=1)
        logs = jnp.log(jnp.maximum(chances, _LEAST))
        reached = jnp.exp(jnp.einsum("ndr,dr->n", jnp.asarray(self.passes), logs, precision=EXACT))
        return 1.0 + exact_matmul(jnp.asarray(self.member), reached)


def _family(trees: Sequence[tuple[np.ndarray, np.ndarray]], plans: Sequence[Plan], shares: np.ndarray) -> Family:
    """From (parent, rank) of each draft."""
    depth = max(int(node_depths(parent).max()) for parent, _ in trees)
    passes, member = [], np.zeros((len(trees), sum(len(parent) for parent, _ in trees)), np.float32)
    for row, (parent, rank) in enumerate(trees):
        begin = len(passes)
        depths = node_depths(parent)
        for node, above in enumerate(parent.tolist()):
            path = np.zeros((depth, 1 + len(shares)), np.float32) if above == ROOT else passes[begin + above].copy()
            path[depths[node] - 1, rank[node]] += 1
            passes.append(path)
        member[row, begin : len(passes)] = 1
    return Family(
        plan=plan_family(plans),
        passes=np.stack(passes),
        member=member,
        nodes=np.array([len(parent) for parent, _ in trees], np.float32),
        shares=shares.astype(np.float32),
    )


def chain_family(longest: int) -> Family:
    """Chains of 1 to `longest` drafted tokens."""
    lengths = range(1, longest + 1)
    trees = [(np.arange(length) - 1, np.zeros(length, np.int64)) for length in lengths]
    return _family(trees, [chain_plan(float(length)) for length in lengths], np.zeros(0))


def tree_family(
    conditional: Float[Array, " depth"], shares: Sequence[float], sizes: Sequence[int], *, deepest: int
) -> Family:
    """The best tree of each size at one acceptance.

    Args:
        conditional: chances of the first choice that shapes are made for.
        shares: of what it misses, by rank from the second on.
        sizes: numbers of nodes; those that a full tree does not reach are left out.
        deepest: <= depths of `conditional`.
    """
    first = np.asarray(jax.device_get(conditional), np.float32)[:deepest]
    other = (1.0 - first)[:, None] * np.asarray(shares, np.float32)
    table = jnp.asarray(np.concatenate([first[:, None], other], axis=1))
    capacity = sum((1 + len(shares)) ** depth for depth in range(1, deepest + 1))
    sizes = sorted({min(int(size), capacity) for size in sizes})
    found = jax.device_get(optimal_trees(table, max_nodes=sizes[-1]))
    trees = [(tree.parent, tree.rank) for tree in (optimal_tree(found, size) for size in sizes)]
    return _family(trees, [tree_plan(parent) for parent, _ in trees], np.asarray(shares, float))
