"""The best draft tree of every size under independent acceptance, by an exact dynamic programme.

Model: a child of rank r at depth d is accepted with chance a[d, r] if its parent is, whatever else happened. A tree then gains
1 + Σ over nodes of the product of a along the node's path, bonus token included.

Derivation. Below an accepted node of depth d the gain depends on nothing above it. Let
  V[d, n] = most tokens accepted below such a node, using exactly n nodes down to the depth limit D,
  S[d, m] = 1 + V[d, m − 1], gain of a subtree of m >= 1 nodes once its top, of depth d, is accepted.
Children get disjoint sets of nodes and are worth a[d + 1, r] S[d + 1, m_r], so that with F[r, n] for ranks from r on
  F[b, 0] = 0,   F[r, n] = max over m of (a[d + 1, r] S[d + 1, m] if m > 0) + F[r + 1, n − m],   V[d, n] = F[0, n]:
one (max, +) convolution for each depth and rank, deepest depth first, each over all n at once; V[D, n] is 0 for n = 0, and no
other n is possible. At most b children: S > 0, so exchanging a used rank for an unused one of higher chance loses nothing, and
it suffices to sort ranks by falling chance and to use the first b. Sizes that are possible form an interval 0..limit at
every step (a full tree is the largest), so that possible sizes are masked by comparison and no infinity is computed with.
O(depth · branching · nodes²) additions.

As no chance exceeds 1, a node's product is at most its parent's, and the best n nodes of the full tree are a tree: growing
greedily by the largest product (`searches.greedy_growth`) reaches the same gain. The programme does not use this, which
makes each a witness of the other; it works on batches under `jit` and has a gradient.

Source: own derivation. The recursion over (depth, rank) is in the spirit of Sequoia, arXiv:2402.12374, 3.1, which has
chances by rank alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, known_value
from jaxspec.trees.topology import ROOT, NestedTrees

__all__ = ["OptimalTrees", "optimal_tree", "optimal_trees", "tree_capacity"]


@struct.dataclass
class OptimalTrees:
    """Best trees for every number of nodes n = 0..N.

    Attributes:
        expected_tokens: tokens per cycle of the best tree of n nodes, bonus included.
        sorted_ranks: at each depth, the ranks by falling chance, as many as a node may have children.
        child_nodes: at [depth, place, n], nodes of the subtree of rank sorted_ranks[depth, place] in the best way to share n
            nodes among the children from that place on.
    """

    expected_tokens: Float[Array, "*b count"]
    sorted_ranks: Int[Array, "*b depth branch"]
    child_nodes: Int[Array, "*b depth branch count"]


def tree_capacity(max_depth: int, max_branching: int) -> int:
    """Nodes of the full tree below the root: Σ over depths of branching^depth."""
    return sum(max_branching**depth for depth in range(1, max_depth + 1))


def _limits(depth: int, branching: int, max_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Most nodes of a subtree whose top has depth d + 1, and of all children from a place on, "depth place+1"."""
    subtree = np.array([min(max_nodes, 1 + tree_capacity(depth - d, branching)) for d in range(1, depth + 1)], np.int32)
    places = np.arange(branching, -1, -1)
    return subtree, np.minimum(max_nodes, subtree[:, None].astype(np.int64) * places).astype(np.int32)


def optimal_trees(
    accept: Float[Array, "depth rank"],
    *,
    max_nodes: int,
    max_depth: int | None = None,
    max_branching: int | None = None,
) -> OptimalTrees:
    """The best trees of 0, 1, ..., max_nodes nodes for one table of chances.

    Args:
        accept: "depth rank", in [0, 1]; P(child of that rank accepted | parent accepted), depth 0 for children of the root.
            Ranks need not be in falling order. `vmap` for a batch. Chances of siblings exclude each other, so rows of
            measured tables sum to at most 1; this is not used.
        max_nodes: static, >= 0, without the root: verification length − 1.
        max_depth: static, 1 to the table's depth (the default).
        max_branching: static, children of one node, 1 to the table's ranks (the default).
    Returns:
        Expected tokens of every n, and what `optimal_tree` needs. Their gradient is that of the tree returned: at a tie between
        trees, where there is a kink, that of one of them.
    Raises:
        ValueError: a table that is not a matrix, known numbers that are no chances, a limit outside its range, or more nodes
            than the full tree has.
    Source: own derivation, see the module's heading.
    """
    table = jnp.asarray(accept)
    if table.ndim != 2 or 0 in table.shape or not jnp.issubdtype(table.dtype, jnp.floating):
        raise ValueError(
            f"accept has shape {table.shape} and type {table.dtype}; it must be a float matrix, depth by rank (vmap a batch)"
        )
    depth = _static_limit("max_depth", max_depth, table.shape[0])
    branching = _static_limit("max_branching", max_branching, table.shape[1])
    known = known_value(table)
    if known is not None and (wrong := known[~((known >= 0) & (known <= 1))]).size:
        raise ValueError(f"accept holds {wrong[0]}; chances are from 0 to 1")
    check_count("max_nodes", max_nodes, least=0, most=tree_capacity(depth, branching))
    ranks = jnp.argsort(table[:depth], axis=1, stable=True, descending=True)[:, :branching]
    chances = jnp.take_along_axis(table[:depth], ranks, axis=1)
    subtree_limit, forest_limit = (jnp.asarray(limit) for limit in _limits(depth, branching, max_nodes))
    count = jnp.arange(max_nodes + 1, dtype=jnp.int32)
    rest = count[:, None] - count[None, :]  # n − m, "n m"

    def add_depth(below, inputs):
        """From the gains below a node one deeper to those below a node of this depth."""
        chance_of_place, top_limit, limit_from_place = inputs
        gain = jnp.concatenate([jnp.zeros_like(below[:1]), 1 + below[:-1]])  # of m nodes once the top is accepted
        # Impossible sizes keep a finite gain of 0, and are never chosen. Infinities would give NaN where a chance is 0.
        small_enough = (rest >= 0) & (count[None, :] <= top_limit)

        def add_place(later, place):
            chance, later_limit = place
            possible = small_enough & (rest <= later_limit)
            total = chance * gain[None, :] + later[jnp.maximum(rest, 0)]
            chosen = jnp.argmax(jnp.where(possible, total, -jnp.inf), axis=1).astype(jnp.int32)
            best = jnp.take_along_axis(total, chosen[:, None], axis=1)[:, 0]
            return jnp.where(jnp.any(possible, axis=1), best, jnp.zeros_like(best)), chosen

        return jax.lax.scan(add_place, jnp.zeros_like(below), (chance_of_place, limit_from_place[1:]), reverse=True)

    nothing = jnp.zeros(max_nodes + 1, table.dtype)
    gains, child_nodes = jax.lax.scan(add_depth, nothing, (chances, subtree_limit, forest_limit), reverse=True)
    return OptimalTrees(expected_tokens=1 + gains, sorted_ranks=ranks, child_nodes=child_nodes)


def _static_limit(name: str, value: int | None, largest: int) -> int:
    if value is None:
        return largest
    check_count(name, value, most=largest)
    return value


def optimal_tree(trees: OptimalTrees, num_nodes: int) -> NestedTrees:
    """The best tree of a given size, traced back on the host; nodes are numbered level by level.

    Args:
        trees: of one table. Convert its leaves with `jax.device_get` first where many sizes are asked for.
        num_nodes: 0 to the largest n of `trees`, without the root.
    Raises:
        ValueError: a batch of tables, or a size outside the range.
    """
    ranks, child_nodes = np.asarray(trees.sorted_ranks), np.asarray(trees.child_nodes)
    if child_nodes.ndim != 3:
        raise ValueError(f"child_nodes has shape {child_nodes.shape}; pick one table of the batch first")
    if not 0 <= num_nodes < child_nodes.shape[2]:
        raise ValueError(f"num_nodes is {num_nodes}; trees of 0 to {child_nodes.shape[2] - 1} nodes were searched")
    parent: list[int] = []
    rank: list[int] = []
    level = [(ROOT, num_nodes)]  # nodes of one depth, each with what is left for its descendants
    for depth in range(child_nodes.shape[0]):
        next_level: list[tuple[int, int]] = []
        for node, left in level:
            place = 0
            while left:
                share = int(child_nodes[depth, place, left])
                if share:
                    next_level.append((len(parent), share - 1))
                    parent.append(node)
                    rank.append(int(ranks[depth, place]))
                left, place = left - share, place + 1
        level = next_level
    return NestedTrees(parent=np.array(parent, np.int64), rank=np.array(rank, np.int64))
