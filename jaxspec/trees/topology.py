"""Draft trees as arrays: parent, depth and rank of every node, padded to a common size.

Nodes are numbered from 0 so that parents come before their children. The root is not a node: it is the last committed token.
A node's rank says which of the draft's guesses it is, 0 for the likeliest, so that the ranks from the root down, its path,
name a node. Siblings have different ranks; ranks may be left out.

Tree attention: which drafted tokens see which, and their positions.

Source: SpecInfer, Miao et al. 2024 (tree attention): all nodes are verified in one step, each attending to the committed
tokens, to its ancestors and to itself. The committed tokens are seen by every node and are not part of these masks.

A draft tree in the order in which it grows: on the host, one numbering holds the tree of every size.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, Int32

from jaxspec.checks import check_count

__all__ = [
    "PADDING",
    "ROOT",
    "NestedTrees",
    "Tree",
    "ancestor_steps",
    "check_ranks",
    "check_tree",
    "children_table",
    "is_node",
    "most_children",
    "node_depths",
    "one_tree",
    "pad_tree",
    "parent_list",
    "rank_path",
    "ranked_before",
    "sibling_position",
    "tree_from_parents",
    "tree_from_paths",
    "tree_line",
    "tree_mask",
    "tree_paths",
    "tree_positions",
    "tree_svg",
    "verification_mask",
    "verification_positions",
    "whole_numbers",
]

# Draft trees as a person sees them in a session: one short line, and a small drawing for a notebook.

_STEP, _LEVEL, _RADIUS = 26, 40, 9


def tree_line(name: str, parent: Any, num_nodes: Any = None) -> str:
    """ "<Tree: 5 nodes, 2 deep, 3 leaves>"; of several trees and traced ones, their shape.

    Args:
        parent: of each node, an earlier one or negative for the root.
        num_nodes: the first so many are nodes; None: all.
    """
    parents = _on_host(parent, num_nodes)
    if parents is None:
        return f"<{name}: parents of shape {getattr(parent, 'shape', parent)}>"
    leaves = len(set(range(len(parents))) - set(parents))
    return f"<{name}: {len(parents)} nodes, {max(_depths(parents), default=0)} deep, {leaves} leaves>"


def tree_svg(parent: Any, rank: Any, num_nodes: Any = None) -> str | None:
    """The tree from its root downwards, each node with its rank: 0 is the draft's first choice.

    Args:
        parent, rank, num_nodes: as in `tree_line`.
    Returns:
        None for several trees and traced ones.
    """
    parents, ranks = _on_host(parent, num_nodes), _on_host(rank, num_nodes)
    return None if parents is None or ranks is None else _drawn(parents, ranks)


def _on_host(values: Any, count: Any) -> list[int] | None:
    known = isinstance(values, np.ndarray | jax.Array) and not isinstance(values, Tracer)
    if not known or np.ndim(values) != 1:
        return None
    return np.asarray(values)[: None if count is None else int(count)].tolist()


def _drawn(parent: Sequence[int], rank: Sequence[int]) -> str:
    depths, places = _depths(parent), _places(parent)
    root = (min(places, default=0.0) + max(places, default=0.0)) / 2
    spot = lambda node: (
        (places[node] if node >= 0 else root) * _STEP + _STEP,
        ((depths[node] if node >= 0 else 0) + 0.5) * _LEVEL,
    )
    lines, nodes = [], []
    for node in range(-1, len(parent)):
        x, y = spot(node)
        if node >= 0:
            above_x, above_y = spot(parent[node])
            lines.append(f'<line x1="{above_x:g}" y1="{above_y:g}" x2="{x:g}" y2="{y:g}" stroke="currentColor"/>')
        fill = "currentColor" if node < 0 else "white"
        nodes.append(f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}" fill="{fill}" stroke="currentColor"/>')
        if node >= 0:
            nodes.append(
                f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" font-size="11" fill="#24292f">{rank[node]}</text>'
            )
    width = (max(places, default=0.0) + 2) * _STEP
    height = (max(depths, default=0) + 1) * _LEVEL
    head = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" style="max-width: 100%" role="img"'
    return f'{head} aria-label="{len(parent)} drafted tokens">{"".join([*lines, *nodes])}</svg>'


def _depths(parent: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for above in parent:
        depths.append(1 + (depths[above] if above >= 0 else 0))
    return depths


def _places(parent: Sequence[int]) -> list[float]:
    """Horizontal place of each node: leaves side by side in the order of a walk, others above the middle of theirs."""
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    for node, above in enumerate(parent):
        children[max(above, -1)].append(node)  # the last list is the root's
    order, stack = [], list(reversed(children[-1]))
    while stack:
        node = stack.pop()
        order.append(node)
        stack += reversed(children[node])
    places, next_leaf = [0.0] * len(parent), 0
    for node in order:
        if not children[node]:
            places[node] = float(next_leaf)
            next_leaf += 1
    for node in reversed(order):
        if children[node]:
            places[node] = (places[children[node][0]] + places[children[node][-1]]) / 2
    return places


#: Trees are arrays of 32-bit numbers.
_LARGEST = np.iinfo(np.int32).max


def rank_path(ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks from the root down to a node, as a key.

    Raises:
        ValueError: no list of whole numbers.
    """
    try:
        return tuple(operator.index(rank) for rank in ranks)
    except TypeError:
        raise ValueError(f"path {ranks!r} must be a list of ranks, whole numbers, as in (0, 2)") from None


def whole_numbers(name: str, values: Sequence[int] | np.ndarray) -> np.ndarray:
    """One entry for each node.

    Raises:
        ValueError: no list of whole numbers, or one that 32 bits do not hold.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} is {values!r}; it must be a list of one or more whole numbers")
    farthest = max(array.tolist(), key=abs)
    if abs(farthest) > _LARGEST:
        raise ValueError(f"{name} holds {farthest}; numbers of a tree have 32 bits")
    return array.astype(np.int64)


def check_ranks(parents: np.ndarray, ranks: np.ndarray) -> None:
    """Ranks are not negative and differ among siblings.

    Raises:
        ValueError: they are, or do not.
    """
    seen: dict[tuple[int, int], int] = {}
    for node, (above, rank) in enumerate(zip(parents.tolist(), ranks.tolist())):
        if rank < 0:
            raise ValueError(f"rank[{node}] is {rank}; ranks count from 0")
        if (above, rank) in seen:
            raise ValueError(
                f"nodes {seen[above, rank]} and {node} are siblings of rank {rank}; give them different ranks"
            )
        seen[above, rank] = node


#: Parent of a node that follows the last committed token.
ROOT = -1

#: Parent, depth and rank of what only fills the arrays; an absent child in a children table.
PADDING = -2


@flax.struct.dataclass
class Tree:
    """One tree, or several of one padded size along leading axes.

    What runs under `jit` takes one tree, as it is built here or on the device; `vmap` for more.
    """

    parent: Int[Array, "*b node"]  # ROOT or an earlier node
    depth: Int[Array, "*b node"]  # 1 for children of the root
    rank: Int[Array, "*b node"]  # from 0
    num_nodes: Int[Array, "*b"]  # the first so many are nodes, all others PADDING

    @property
    def size(self) -> int:
        """Nodes that there is room for, padding included; static."""
        return self.parent.shape[-1]

    def __repr__(self) -> str:
        return tree_line("Tree", self.parent, self.num_nodes)

    def _repr_html_(self) -> str | None:
        return tree_svg(self.parent, self.rank, self.num_nodes)


def node_depths(parent: Int[np.ndarray, " node"]) -> Int[np.ndarray, " node"]:
    """Depth of each node, 1 for children of the root, on the host.

    Raises:
        ValueError: a parent that is neither `ROOT` nor an earlier node.
    """
    depth = np.zeros(parent.size, np.int64)
    for node, above in enumerate(parent.tolist()):
        if not ROOT <= above < node:
            raise ValueError(
                f"parent[{node}] is {above}; allowed are {ROOT} (the root) to {node - 1}: number parents first"
            )
        depth[node] = 1 + (depth[above] if above != ROOT else 0)
    return depth


def tree_from_parents(
    parent: Sequence[int] | Int[np.ndarray, " node"],
    *,
    rank: Sequence[int] | Int[np.ndarray, " node"] | None = None,
    size: int | None = None,
) -> Tree:
    """A tree from its parent list, on the host.

    Args:
        parent: "node", each `ROOT` or an earlier node.
        rank: "node", from 0, different among siblings; without it siblings rank in the order of their numbers.
        size: nodes to pad to; without it, as many as there are.
    Raises:
        ValueError: no node, a parent that is not an earlier node, siblings of one rank, or more nodes than the size.
    """
    parents = whole_numbers("parent", parent)
    depth = node_depths(parents)
    counted = np.zeros(parents.size, np.int64)
    children = np.zeros(parents.size + 1, np.int64)
    for node, above in enumerate(parents.tolist()):
        counted[node] = children[above + 1]
        children[above + 1] += 1
    ranks = counted if rank is None else whole_numbers("rank", rank)
    if ranks.shape != parents.shape:
        raise ValueError(f"rank has {ranks.size} entries for {parents.size} nodes; give one per node")
    check_ranks(parents, ranks)
    return _padded(parents, depth, ranks, parents.size if size is None else size)


def tree_from_paths(paths: Iterable[Sequence[int]], *, size: int | None = None) -> Tree:
    """A tree from the paths of its nodes, on the host.

    Args:
        paths: ranks from the root down, (0,), (0, 2), ..., one path per node, in any order. Nodes are numbered by depth,
            then by path.
        size: nodes to pad to; without it, as many as there are.
    Raises:
        ValueError: no path, one that is not ranks, an empty one, one given twice, a negative rank, or a missing parent.
    """
    ordered = sorted(map(rank_path, paths), key=lambda path: (len(path), path))
    number: dict[tuple[int, ...], int] = {(): ROOT}
    for node, path in enumerate(ordered):
        if path in number:
            raise ValueError(f"path {path} is {'that of the root' if not path else 'there twice'}; give each node once")
        if path[:-1] not in number:
            raise ValueError(f"path {path} has no parent; add the path {path[:-1]}")
        number[path] = node
    return tree_from_parents(
        [number[path[:-1]] for path in ordered], rank=[path[-1] for path in ordered if path], size=size
    )


def tree_paths(tree: Tree) -> list[tuple[int, ...]]:
    """The path of every node in the order of their numbers: ranks from the root down, on the host."""
    check_tree(tree)
    paths: list[tuple[int, ...]] = []
    for above, rank in zip(parent_list(tree), np.asarray(tree.rank).tolist()):
        paths.append((*(paths[above] if above != ROOT else ()), rank))
    return paths


def parent_list(tree: Tree) -> list[int]:
    """Parents without the padding, on the host: what `hwmodels.speculation.plan` takes."""
    return np.asarray(tree.parent)[: int(tree.num_nodes)].tolist()


def pad_tree(tree: Tree, *, size: int) -> Tree:
    """The same tree with room for `size` nodes, on the host.

    Raises:
        ValueError: an invalid tree, or more nodes than the size.
    """
    check_tree(tree)
    nodes = int(tree.num_nodes)
    parent, depth, rank = (np.asarray(leaf)[:nodes] for leaf in (tree.parent, tree.depth, tree.rank))
    return _padded(parent, depth, rank, size)


def is_node(tree: Tree) -> Bool[Array, " node"]:
    """Mask of the places of one tree that hold a node and no padding."""
    return jnp.arange(one_tree(tree).size, dtype=jnp.int32) < jnp.asarray(tree.num_nodes, jnp.int32)


def ranked_before(tree: Tree) -> Bool[Array, "node node"]:
    """For each node (first axis), which nodes are siblings of a smaller rank; none for padding."""
    parent, rank = jnp.asarray(one_tree(tree).parent), jnp.asarray(tree.rank)
    siblings = (parent[:, None] == parent[None, :]) & is_node(tree)[:, None]
    return siblings & (rank[None, :] < rank[:, None])


def sibling_position(tree: Tree) -> Int32[Array, " node"]:
    """Number of siblings of each node with a smaller rank: its rank, where no rank is left out; padding gives 0."""
    return jnp.sum(ranked_before(tree), axis=1, dtype=jnp.int32)


def children_table(tree: Tree, *, max_children: int | None = None) -> Int32[Array, "token child"]:
    """Children of the root (row 0) and of each node i (row i + 1), by rising rank, then `PADDING`.

    Args:
        tree: one tree; works under `jit` and `vmap`.
        max_children: static; columns, as many as a node may have children; without it, the padded size. Further children
            are left out.
    Raises:
        ValueError: `max_children` below 1, or more than one tree.
    """
    size = one_tree(tree).size
    columns = size if max_children is None else max_children
    if columns < 1:
        raise ValueError(f"max_children is {columns}; it must be at least 1")
    row = jnp.where(is_node(tree), jnp.asarray(tree.parent, jnp.int32) + 1, size + 1)  # padding falls out of the table
    table = jnp.full((size + 1, columns), PADDING, jnp.int32)
    return table.at[row, sibling_position(tree)].set(jnp.arange(size, dtype=jnp.int32), mode="drop")


def most_children(tree: Tree) -> int:
    """Children that the root or a node has at most, over all trees of a stack, on the host."""
    parents = np.asarray(tree.parent)
    rows = parents.reshape(-1, parents.shape[-1])
    return max(int(np.bincount(row[row != PADDING] + 1).max()) for row in rows)


def check_tree(tree: Tree) -> None:
    """Check one tree that was built on the device, on the host.

    Raises:
        ValueError: what is wrong first: shapes, number of nodes, a parent, a depth, a rank or padding.
    """
    one_tree(tree)
    parent, depth, rank = (np.asarray(leaf) for leaf in (tree.parent, tree.depth, tree.rank))
    nodes = int(tree.num_nodes)
    if not parent.shape == depth.shape == rank.shape:
        raise ValueError(
            f"parent, depth and rank have shapes {parent.shape}, {depth.shape}, {rank.shape}; make them equal"
        )
    if not 1 <= nodes <= parent.size:
        raise ValueError(f"num_nodes is {nodes}; allowed are 1 to the {parent.size} that there is room for")
    again = tree_from_parents(parent[:nodes], rank=rank[:nodes], size=parent.size)
    wrong = np.flatnonzero(depth[:nodes] != np.asarray(again.depth)[:nodes])
    if wrong.size:
        node = int(wrong[0])
        raise ValueError(f"depth[{node}] is {depth[node]}; its parent makes it {int(again.depth[node])}")
    if any(np.any(leaf[nodes:] != PADDING) for leaf in (parent, depth, rank)):
        raise ValueError(f"entries from {nodes} on are not all {PADDING} (padding); fill them or raise num_nodes")


def one_tree(tree: Tree) -> Tree:
    """The tree itself, if it is one and not several.

    Raises:
        ValueError: more axes than "node".
    """
    if jnp.ndim(tree.parent) != 1:
        raise ValueError(f"parent has shape {jnp.shape(tree.parent)}; give one tree, and use vmap for several")
    return tree


def _padded(parent: np.ndarray, depth: np.ndarray, rank: np.ndarray, size: int) -> Tree:
    check_count("size", size)
    if size < parent.size:
        raise ValueError(f"size is {size} for {parent.size} nodes; it must be at least that")
    fill = lambda values: jnp.asarray(np.pad(values, (0, size - values.size), constant_values=PADDING), jnp.int32)
    return Tree(parent=fill(parent), depth=fill(depth), rank=fill(rank), num_nodes=jnp.asarray(parent.size, jnp.int32))


def ancestor_steps(tree: Tree) -> int:
    """Pointer jumps, each twice as long as the last, after which every node has reached the root; static."""
    return (tree.size - 1).bit_length()


def tree_mask(tree: Tree) -> Bool[Array, "node node"]:
    """Mask of the nodes that each node (first axis) sees: its ancestors and itself.

    Args:
        tree: one tree; works under `jit` and `vmap`.
    Returns:
        Padding sees nothing and is seen by nothing: a softmax over its row needs some other entry to be finite.
    Raises:
        ValueError: more than one tree.
    """
    size = one_tree(tree).size
    # Row and column `size` stand for everything above the tree; the jumps end there.
    above = jnp.where(jnp.asarray(tree.parent) >= 0, jnp.asarray(tree.parent, jnp.int32), size)
    above = jnp.append(above, jnp.asarray([size], jnp.int32))
    sees = jnp.eye(size, dtype=bool) & is_node(tree)[:, None]
    sees = jnp.pad(sees, ((0, 1), (0, 0)))

    def jump(_, carry):
        """Each node knows 2^k of those on its way up, itself included; the next 2^k are known to the 2^k-th above it."""
        sees, above = carry
        return sees | sees[above], above[above]

    return jax.lax.fori_loop(0, ancestor_steps(tree), jump, (sees, above))[0][:size]


def tree_positions(tree: Tree) -> Int32[Array, " node"]:
    """Position of each node after the root's: its depth, and 0 for padding."""
    return jnp.where(is_node(tree), jnp.asarray(tree.depth, jnp.int32), 0)


def verification_mask(tree: Tree) -> Bool[Array, "token token"]:
    """Mask of a verification step: token 0 is the root, which all see, and token i + 1 is node i.

    Raises:
        ValueError: more than one tree.
    """
    sees_root = jnp.append(jnp.asarray([True]), is_node(tree))
    return jnp.pad(tree_mask(tree), ((1, 0), (1, 0))) | (sees_root[:, None] & (jnp.arange(tree.size + 1) == 0)[None, :])


def verification_positions(tree: Tree) -> Int32[Array, " token"]:
    """Positions of a verification step after the root's: 0 for the root (token 0), then those of the nodes."""
    return jnp.pad(tree_positions(tree), (1, 0))


class NestedTrees(NamedTuple):
    """Draft trees on the host, each the first nodes of the next larger one: parent and rank of each node. There may be none.

    Attributes:
        parent: "node", −1 for children of the root, else an earlier node.
        rank: "node", 0 for the draft's first choice after the parent; siblings differ in rank.
    """

    parent: Int[np.ndarray, " node"]
    rank: Int[np.ndarray, " node"]

    def __repr__(self) -> str:
        return tree_line("NestedTrees", self.parent)

    def _repr_html_(self) -> str | None:
        return tree_svg(self.parent, self.rank)

    def first(self, nodes: int) -> NestedTrees:
        """The tree of the first so many nodes."""
        return NestedTrees(self.parent[:nodes], self.rank[:nodes])

    def tree(self, *, size: int | None = None) -> Tree:
        """The same tree as padded arrays, which programs take.

        Raises:
            ValueError: see `tree_from_parents`.
        """
        return tree_from_parents(self.parent, rank=self.rank, size=size)
