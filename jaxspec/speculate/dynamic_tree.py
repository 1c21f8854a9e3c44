"""Trees that each cycle shapes anew by the draft's own probabilities.

In every level the nodes of the highest joint probability are expanded; in the end the best of all candidates are kept. A node
is no likelier than its parent, so that they are a tree.

Source: EAGLE-2, Li et al. 2024, arXiv:2406.16858, 4.1 (expansion) and 4.2 (reranking).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from jaxspec.checks import check_count
from jaxspec.speculate.drafts.interface import Draft, Level, Memory, Root
from jaxspec.speculate.expansion import DraftedTree, Drafter, TreeLimits
from jaxspec.speculate.sampling import Decoding
from jaxspec.speculate.steps import largest
from jaxspec.trees.topology import PADDING, ROOT, Tree

__all__ = ["DynamicTree", "draft_dynamic_tree"]


@dataclasses.dataclass(frozen=True)
class DynamicTree:
    """A tree that each cycle shapes anew by the draft's probabilities.

    Attributes:
        nodes: tokens drafted for verification, the root not counted.
        depth: levels, each a step of the draft.
        branches: candidates after each expanded node.
        frontier: nodes expanded in each level below the root.
    Raises:
        ValueError: a number below 1, or fewer candidates than nodes.
    """

    nodes: int
    depth: int = 5
    branches: int = 8
    frontier: int = 8

    def __post_init__(self) -> None:
        for name in ("nodes", "depth", "branches", "frontier"):
            check_count(name, getattr(self, name))
        level = min(self.frontier, self.branches)
        most = self.branches
        for _ in range(self.depth - 1):
            most += level * self.branches
            level = min(self.frontier, level * self.branches)
        if self.nodes > most:
            raise ValueError(f"nodes is {self.nodes}; depth, branches and frontier give {most} candidates at most")

    @property
    def limits(self) -> TreeLimits:
        """Static sizes of the trees that come of it."""
        return TreeLimits(nodes=self.nodes, depth=self.depth, ranks=self.branches, width=self.frontier)

    @property
    def numbers(self) -> int:
        """Numbers of drafted tokens within a cycle, root included: what the draft expands, not what is verified."""
        return 1 + max(1, self.depth - 1) * self.frontier


def draft_dynamic_tree(
    draft: Draft,
    params: Any,
    memory: Memory,
    root: Root,
    dynamic: DynamicTree,
    seed: Key[Array, ""],
    prompt_ids: Int[Array, " batch"],
    decoding: Decoding,
) -> tuple[DraftedTree, Memory]:
    """Draft a tree for each sequence, from the draft's likeliest tokens: sampled ones would bias which are verified."""
    drafter = Drafter(draft, params, root, seed, prompt_ids, decoding, dynamic.branches, "top")
    batch, k, branches = root.token.shape[0], dynamic.frontier, dynamic.branches
    per_level = k * branches
    pool = dynamic.depth * per_level
    proposed, memory = drafter.open(memory)
    # The root's candidates are a level of their own, whose other places are impossible.
    joint = (
        jnp.full((batch, pool), -jnp.inf, proposed.log_probability.dtype)
        .at[:, :branches]
        .set(proposed.log_probability[:, 0])
    )
    tokens = jnp.zeros((batch, pool), jnp.int32).at[:, :branches].set(proposed.tokens[:, 0])
    number_of = jnp.zeros((batch, pool), jnp.int32)  # of the parent
    expanded = jnp.zeros((batch, dynamic.numbers - 1), jnp.int32)  # number − 1 -> its place in the pool
    above = jnp.zeros((batch, dynamic.numbers, dynamic.numbers), bool)  # at [.., number, number above it]

    def expand(depth, carry):
        joint, tokens, number_of, expanded, above, memory = carry
        start = (depth - 1) * per_level
        slice_ = lambda x: jax.lax.dynamic_slice_in_dim(x, start, per_level, axis=1)
        best, place = largest(slice_(joint), k)
        pick = lambda x: jnp.take_along_axis(slice_(x), place, axis=1)
        parent = pick(number_of)
        first = 1 + (depth - 1) * k
        own = jnp.take_along_axis(above, parent[:, :, None], axis=1)
        own = own | (jnp.arange(above.shape[2])[None, None] == parent[:, :, None])
        level = Level(
            tokens=pick(tokens), first=first, depth=jnp.full((batch, k), depth, jnp.int32), parent=parent, ancestors=own
        )
        proposed, memory = drafter.extend(memory, level, depth)
        flat = lambda x: x.reshape(batch, per_level)
        write = lambda x, new, at: jax.lax.dynamic_update_slice_in_dim(x, new, at, axis=1)
        at = depth * per_level
        numbers = jnp.broadcast_to((first + jnp.arange(k, dtype=jnp.int32))[:, None], (k, branches)).reshape(-1)
        return (
            write(joint, flat(best[:, :, None] + proposed.log_probability), at),
            write(tokens, flat(proposed.tokens), at),
            write(number_of, jnp.broadcast_to(numbers, (batch, per_level)), at),
            write(expanded, (start + place).astype(jnp.int32), first - 1),
            write(above, own, first),
            memory,
        )

    carry = (joint, tokens, number_of, expanded, above, memory)
    joint, tokens, number_of, expanded, _, memory = jax.lax.fori_loop(1, dynamic.depth, expand, carry)
    # A node is no likelier than its parent, which comes before it: of equals the first is taken.
    best, chosen = largest(joint, dynamic.nodes)
    possible = best > -jnp.inf
    chosen = jnp.sort(jnp.where(possible, chosen, pool), axis=1).astype(jnp.int32)
    return jax.vmap(partial(_reranked, branches=branches, per_level=per_level))(
        chosen, tokens, number_of, expanded
    ), memory


def _reranked(chosen: Array, tokens: Array, number_of: Array, expanded: Array, *, branches: int, per_level: int):
    """The chosen candidates of one sequence as a tree, in the order of the pool: parents first."""
    pool, size = tokens.shape[0], chosen.shape[0]
    node = chosen < pool
    place_of = jnp.full(pool, PADDING, jnp.int32).at[chosen].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    at = jnp.minimum(chosen, pool - 1)
    number = number_of[at]
    parent = jnp.where(number == 0, ROOT, place_of[expanded[jnp.maximum(number - 1, 0)]])
    only = lambda value: jnp.where(node, value, PADDING).astype(jnp.int32)
    tree = Tree(
        parent=only(parent),
        depth=only(1 + at // per_level),
        rank=only(at % branches),
        num_nodes=jnp.sum(node, dtype=jnp.int32),
    )
    row = jnp.where(node, parent + 1, size + 1)
    candidates = jnp.zeros((size + 1, branches), jnp.int32).at[row, at % branches].set(tokens[at], mode="drop")
    return DraftedTree(tree, tokens[at], candidates, None)
