"""Searches whose trees grow node by node: one numbering of nodes holds the tree of every size.

Each search returns a `NestedTrees` whose nodes are in the order in which it adds them, so that the tree of n nodes is its
first n: `tree.first(n)`. All run on the host, once; `expected_tokens_by_size` prices every size.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C (prior score) and
    IV-E (width and depth).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int, Num

from jaxspec.checks import check_count, known_value
from jaxspec.trees.topology import ROOT, NestedTrees, node_depths

__all__ = [
    "OptimalTrees",
    "depth_first_growth",
    "expected_tokens_by_size",
    "greedy_growth",
    "maximal_tree",
    "optimal_tree",
    "optimal_trees",
    "prior_score_growth",
    "prior_scores",
    "tree_capacity",
    "width_first_growth",
]

# The best draft tree of every size under independent acceptance, by an exact dynamic programme.


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


def _checked(tree: NestedTrees) -> tuple[NestedTrees, np.ndarray]:
    """The tree as arrays, and each node's depth, 1 for children of the root."""
    parent, rank = np.asarray(tree.parent), np.asarray(tree.rank)
    if parent.ndim != 1 or parent.shape != rank.shape:
        raise ValueError(
            f"parent has shape {parent.shape} and rank {rank.shape}; give one whole number of each for every node"
        )
    depth = node_depths(parent)
    if len(set(zip(parent.tolist(), rank.tolist()))) < parent.size or (parent.size and rank.min() < 0):
        raise ValueError("two children of one parent have the same rank, or a rank is negative; siblings are 0, 1, ...")
    return NestedTrees(parent, rank), depth


def _in_order(tree: NestedTrees, order: Sequence[int] | np.ndarray) -> NestedTrees:
    """The same tree with its nodes renumbered: the first of `order` becomes node 0."""
    kept = np.asarray(order, np.int64)
    place = np.zeros(kept.size, np.int64)
    place[kept] = np.arange(kept.size)
    above = tree.parent[kept]
    return NestedTrees(np.where(above == ROOT, ROOT, place[above]).astype(np.int64), tree.rank[kept].astype(np.int64))


def maximal_tree(num_nodes: int, *, depth: int, max_branching: int | None = None) -> NestedTrees:
    """The tree that a prior-score search prunes: nodes spread evenly over its levels.

    Level d gets num_nodes // depth nodes, the first num_nodes % depth levels one more, and what a level cannot hold goes to
    the next. A level's nodes are those with the smallest product of (1 + rank) along their path, ties in the order of their
    parents: parents the draft prefers get more children, as if the chance of a rank fell like 1 / (1 + rank).

    Args:
        num_nodes: >= 1, x_m of the paper, without the root.
        depth: >= 1, levels.
        max_branching: most children of a node; unlimited unless given.
    Returns:
        Nodes level by level, within a level by falling preference.
    Raises:
        ValueError: fewer nodes than levels, a limit below 1, or limits that leave nodes over.
    Source: III-C, which says "evenly distributed across levels" and no more.
    Departs: the choice of parents and ranks is ours.
    """
    if not 1 <= depth <= num_nodes:
        raise ValueError(f"depth is {depth}; {num_nodes} nodes can have 1 to {num_nodes} levels")
    if max_branching is not None and max_branching < 1:
        raise ValueError(f"max_branching is {max_branching}; it must be at least 1, or None for no limit")
    parent: list[int] = []
    rank: list[int] = []
    level, owed = [(ROOT, 1)], 0  # nodes of the level above with their products
    for index in range(depth):
        owed += num_nodes // depth + (index < num_nodes % depth)
        ranks = range(owed if max_branching is None else min(owed, max_branching))
        candidates = sorted((product * (1 + r), place, r) for place, (_, product) in enumerate(level) for r in ranks)[
            :owed
        ]
        next_level = []
        for product, place, r in candidates:
            next_level.append((len(parent), product))
            parent.append(level[place][0])
            rank.append(r)
        level, owed = next_level, owed - len(candidates)
    if owed:
        raise ValueError(
            f"{owed} of {num_nodes} nodes have no place in {depth} levels of branching {max_branching}; allow more of either"
        )
    return NestedTrees(np.array(parent, np.int64), np.array(rank, np.int64))


def prior_scores(tree: NestedTrees, deepest_accepted: Int[np.ndarray, " cycle"]) -> Int[np.ndarray, " node"]:
    """In how many cycles each node's token was accepted.

    Args:
        tree: verified in every cycle.
        deepest_accepted: "cycle", the last accepted node of each cycle, −1 where none was; all above it count as accepted.
    Returns:
        "node", int64.
    Raises:
        ValueError: a malformed tree, or a node that it has not.
    Source: III-C, the score list.
    """
    tree, _ = _checked(tree)
    last, size = np.asarray(deepest_accepted).ravel(), tree.parent.size
    if last.size and not (np.issubdtype(last.dtype, np.integer) and last.min() >= ROOT and last.max() < size):
        raise ValueError(f"deepest_accepted must be whole numbers from {ROOT} (none) to {size - 1}, the last node")
    score = np.bincount(last.astype(np.int64) + 1, minlength=size + 1)[1:].astype(np.int64)
    for node in range(size - 1, -1, -1):
        if tree.parent[node] != ROOT:
            score[tree.parent[node]] += score[node]
    return score


def prior_score_growth(tree: NestedTrees, score: Num[np.ndarray, " node"]) -> NestedTrees:
    """The maximal tree's nodes by falling score, none before its parent.

    Scores that count acceptances never exceed the parent's, and the order is then the plain sort of the paper, ties in the
    tree's own numbering. Any other scores (estimates, differences) are kept connected: the next node is the one with the
    highest score among those whose parent is in.

    Args:
        tree: of x_m nodes, as from `maximal_tree`.
        score: "node", finite.
    Raises:
        ValueError: a malformed tree, another number of scores, or a score that is not finite.
    Source: III-C, the top x of the score list.
    """
    tree, _ = _checked(tree)
    scores = np.asarray(score)
    if scores.shape != tree.parent.shape or not np.isfinite(scores).all():
        raise ValueError(f"score has shape {scores.shape}; give one finite number for each of {tree.parent.size} nodes")
    children: list[list[int]] = [[] for _ in range(tree.parent.size + 1)]
    for node, above in enumerate(tree.parent.tolist()):
        children[above].append(node)  # those of the root, −1, are last
    falling = [-value for value in scores.tolist()]
    frontier = [(falling[node], node) for node in children[ROOT]]
    heapq.heapify(frontier)
    order: list[int] = []
    while frontier:
        _, node = heapq.heappop(frontier)
        order.append(node)
        for child in children[node]:
            heapq.heappush(frontier, (falling[child], child))
    return _in_order(tree, order)


def width_first_growth(tree: NestedTrees) -> NestedTrees:
    """Nodes of a fixed shape level by level, within a level in the shape's own numbering.

    Raises:
        ValueError: a malformed tree.
    Source: IV-E, "fills nodes level by level within a fixed tree shape". The shape is not printed; `maximal_tree` is ours.
    """
    tree, depth = _checked(tree)
    return _in_order(tree, np.argsort(depth, kind="stable"))


def depth_first_growth(tree: NestedTrees) -> NestedTrees:
    """Nodes of a fixed shape down its levels in turn: each a level below the last, and from the deepest back to the first.

    In each level the first node that is left and whose parent is in comes next; a level that has none is passed over.

    Raises:
        ValueError: a malformed tree.
    Source: IV-E, "if the k-th node is at level m, the (k+1)-th goes to level m+1".
    Departs: what follows the deepest level, and which node of a level, is not printed; both are ours.
    """
    tree, depth = _checked(tree)
    levels = [np.flatnonzero(depth == d).tolist() for d in range(1, int(depth.max(initial=0)) + 1)]
    placed = np.zeros(tree.parent.size + 1, bool)
    placed[ROOT] = True
    order: list[int] = []
    while len(order) < tree.parent.size:
        for level in levels:
            ready = next((node for node in level if placed[tree.parent[node]]), None)
            if ready is not None:
                level.remove(ready)
                placed[ready] = True
                order.append(ready)
    return _in_order(tree, order)


def greedy_growth(
    accept: Float[np.ndarray, "depth rank"], num_nodes: int, *, max_branching: int | None = None
) -> NestedTrees:
    """Grow a tree by the node most likely to be reached and accepted, from a table of independent chances.

    The best tree of every size in this model, because no node is likelier than its parent (see `optimal_tree`).

    Args:
        accept: "depth rank", in [0, 1]; P(child of that rank accepted | parent accepted), in any order of ranks.
        num_nodes: >= 0, without the root; its depth limits the tree.
        max_branching: most children of a node, 1 to the table's ranks (the default).
    Raises:
        ValueError: a table that is not a matrix of chances, a limit outside its range, or more nodes than there are.
    Source: EAGLE-2, arXiv:2406.16858, 4.1 and 4.2 (expand and rerank by the product of confidences along the path).
    Departs: the table's chances instead of the draft's confidences, so that the tree is static.
    """
    table = np.asarray(accept, np.float64)
    if table.ndim != 2 or 0 in table.shape or not ((table >= 0) & (table <= 1)).all():
        raise ValueError(f"accept has shape {table.shape}; it must be a matrix, depth by rank, of chances from 0 to 1")
    branching = table.shape[1] if max_branching is None else max_branching
    if not 1 <= branching <= table.shape[1]:
        raise ValueError(f"max_branching is {branching}; the table allows 1 to {table.shape[1]}")
    ranks = np.argsort(-table, axis=1, kind="stable")[:, :branching]
    parent: list[int] = []
    rank: list[int] = []
    # (−chance to be reached and accepted, depth, parent, place among siblings, −the parent's); equal chances: shallow first.
    frontier = [(-table[0, ranks[0, 0]], 0, ROOT, 0, -1.0)]
    while len(parent) < num_nodes and frontier:
        reached, depth, above, place, parent_reached = heapq.heappop(frontier)
        node = len(parent)
        parent.append(above)
        rank.append(int(ranks[depth, place]))
        # A sibling is no likelier than this node, and a child neither: no other candidates arise.
        if place + 1 < branching:
            sibling = parent_reached * table[depth, ranks[depth, place + 1]]
            heapq.heappush(frontier, (sibling, depth, above, place + 1, parent_reached))
        if depth + 1 < table.shape[0]:
            heapq.heappush(frontier, (reached * table[depth + 1, ranks[depth + 1, 0]], depth + 1, node, 0, reached))
    if len(parent) < num_nodes or num_nodes < 0:
        raise ValueError(
            f"num_nodes is {num_nodes}; depth {table.shape[0]} and branching {branching} allow 0 to {len(parent)}"
        )
    return NestedTrees(np.array(parent, np.int64), np.array(rank, np.int64))


def expected_tokens_by_size(tree: NestedTrees, accept: Float[Array, "*b depth rank"]) -> Float[Array, "*b count"]:
    """Tokens per cycle of every prefix of a tree, under independent acceptance.

    Args:
        tree: static, n nodes.
        accept: "*b depth rank", in [0, 1], as in `greedy_growth`; differentiable.
    Returns:
        "*b count", for 0 to n nodes: 1 plus the sum over nodes of the product of chances along their path.
    Raises:
        ValueError: a malformed tree, or one deeper or wider than the table.
    """
    tree, depth = _checked(tree)
    table = jnp.asarray(accept)
    levels, width = int(depth.max(initial=0)), int(tree.rank.max(initial=-1)) + 1
    if table.ndim < 2 or levels > table.shape[-2] or width > table.shape[-1]:
        raise ValueError(f"accept has shape {table.shape}; the tree needs {levels} depths and {width} ranks at least")
    # Rank of each node's ancestor in each level, itself included; −1 below the node.
    path = np.full((tree.parent.size, levels), -1, np.int64)
    for node, above in enumerate(tree.parent.tolist()):
        if above != ROOT:
            path[node] = path[above]
        path[node, depth[node] - 1] = tree.rank[node]
    chances = table[..., np.arange(levels)[None, :], np.maximum(path, 0)]  # "*b node level"
    on_path = jnp.broadcast_to(path >= 0, chances.shape)
    reached = jnp.prod(jnp.where(on_path, chances, jnp.ones_like(chances)), axis=-1)
    start = jnp.ones_like(table[..., :1, 0])
    return jnp.concatenate([start, 1 + jnp.cumsum(reached, axis=-1)], axis=-1)
