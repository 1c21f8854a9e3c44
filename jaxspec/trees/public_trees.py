"""Well-known draft trees as data, by the paths of their nodes, and generators of regular ones; chains of any length.

The released trees leave out no rank, so that the number of children of each inner node says all.
"""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxspec.checks import check_count, check_traced_count
from jaxspec.trees.topology import PADDING, Tree, tree_from_paths

__all__ = [
    "PUBLIC_TREES",
    "PublicTree",
    "chain_like_paths",
    "chain_paths",
    "chain_tree",
    "k_ary_paths",
    "public_tree",
    "star_paths",
]

Paths: TypeAlias = tuple[tuple[int, ...], ...]


class PublicTree(NamedTuple):
    """Paths of a tree's nodes, the root not among them, and where the tree comes from."""

    paths: Paths
    source: str


def chain_tree(draft_length: Int[Array, ""] | int, width: int) -> Tree:
    """A chain of drafted tokens, with room for as many as a verification of `width` tokens has beside the root.

    Args:
        draft_length: 0 (a tree without nodes) to width − 1; may be traced: out of range, it counts as the nearest in range.
        width: static, at least 1.
    Raises:
        ValueError: a number out of its range.
    """
    check_count("width", width)
    check_traced_count("draft_length", draft_length, least=0, most=width - 1)
    nodes = jnp.clip(jnp.asarray(draft_length, jnp.int32), 0, width - 1)
    number = jnp.arange(width - 1, dtype=jnp.int32)
    only = lambda value: jnp.where(number < nodes, value, PADDING)
    return Tree(parent=only(number - 1), depth=only(number + 1), rank=only(jnp.zeros_like(number)), num_nodes=nodes)


def chain_paths(num_nodes: int) -> Paths:
    """A chain: each node is the draft's first guess after the one before.

    Raises:
        ValueError: less than one node.
    """
    _at_least_one("num_nodes", num_nodes)
    return tuple((0,) * depth for depth in range(1, num_nodes + 1))


def star_paths(num_nodes: int) -> Paths:
    """A star: the draft's first guesses for one position.

    Raises:
        ValueError: less than one node.
    """
    _at_least_one("num_nodes", num_nodes)
    return tuple((rank,) for rank in range(num_nodes))


def k_ary_paths(branches: int, *, depth: int) -> Paths:
    """A full tree: the root and each node above the last level have `branches` children.

    Raises:
        ValueError: less than one branch or level.
    """
    _at_least_one("branches", branches)
    _at_least_one("depth", depth)
    levels = (itertools.product(range(branches), repeat=level) for level in range(1, depth + 1))
    return tuple(itertools.chain.from_iterable(levels))


def chain_like_paths(num_nodes: int = 64, *, rank_cost: int = 4) -> Paths:
    """A long trunk of first guesses with ever shorter branches: a default before anything has been measured.

    These are the nodes of the highest joint probability where each further level costs a factor f and each further rank
    f**rank_cost, whatever f is: the first in the order of depth + rank_cost × (sum of ranks), ties by path.

    Args:
        rank_cost: whole number >= 1; how many levels of first guesses one lower rank is worth. Large is a chain.
    Raises:
        ValueError: less than one node, or a cost below 1.
    """
    _at_least_one("num_nodes", num_nodes)
    _at_least_one("rank_cost", rank_cost)
    at_cost: list[list[tuple[int, ...]]] = [[()]]
    paths: list[tuple[int, ...]] = []
    while len(paths) < num_nodes:
        cost = len(at_cost)
        ranks = range((cost - 1) // rank_cost + 1)
        at_cost.append(sorted((*path, rank) for rank in ranks for path in at_cost[cost - 1 - rank_cost * rank]))
        paths += at_cost[cost]
    return tuple(paths[:num_nodes])


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def _from_children(children: dict[tuple[int, ...], int]) -> Paths:
    return tuple((*path, rank) for path, count in children.items() for rank in range(count))


_MEDUSA = _from_children(
    {(): 10, (0,): 10, (1,): 7, (2,): 3, (3,): 2}
    | {(first,): 1 for first in range(4, 10)}
    | {(0, 0): 10, (0, 1): 3, (0, 2): 2}
    | {(0, second): 1 for second in range(3, 8)}
    | {(1, 0): 2, (2, 0): 1, (0, 0, 0): 2}
)

_EAGLE = _from_children(
    {
        (): 4,
        **{(0,): 3, (1,): 2, (2,): 2, (3,): 1},
        **{(0, 0): 3, (0, 1): 2, (0, 2): 2, (1, 0): 1},
        **{(0, 0, 0): 3, (0, 0, 0, 0): 2},
    }
)

#: Trees by name; the number in a name counts the nodes, to which a verification adds the root.
PUBLIC_TREES: MappingProxyType[str, PublicTree] = MappingProxyType(
    {
        "medusa_63": PublicTree(_MEDUSA, "Medusa, Cai et al. 2024: default of the released code, mc_sim_7b_63"),
        "eagle_25": PublicTree(_EAGLE, "EAGLE, Li et al. 2024: default of the released code, also named mc_sim_7b_63"),
        "chain_like_64": PublicTree(chain_like_paths(), "generated: chain_like_paths()"),
        "chain_8": PublicTree(chain_paths(8), "generated: chain_paths(8)"),
        "binary_62": PublicTree(k_ary_paths(2, depth=5), "generated: k_ary_paths(2, depth=5)"),
        "ternary_39": PublicTree(k_ary_paths(3, depth=3), "generated: k_ary_paths(3, depth=3)"),
        "quaternary_20": PublicTree(k_ary_paths(4, depth=2), "generated: k_ary_paths(4, depth=2)"),
    }
)


def public_tree(name: str, *, size: int | None = None) -> Tree:
    """One of `PUBLIC_TREES`.

    Args:
        size: nodes to pad to; without it, as many as there are.
    Raises:
        ValueError: no such name, or more nodes than the size.
    """
    if name not in PUBLIC_TREES:
        raise ValueError(f"there is no public tree {name!r}; known are {', '.join(PUBLIC_TREES)}")
    return tree_from_paths(PUBLIC_TREES[name].paths, size=size)
