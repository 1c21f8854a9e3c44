"""From a draft to a tree of drafted tokens of a given shape: the draft is asked level by level.

Each node gets the draft's candidate of its rank after its parent.

Source: SpecInfer, Miao et al. 2024 (static expansion).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.speculate.drafts.interface import Draft, Level, Memory, Root
from jaxspec.speculate.sampling import Decoding, Purpose, draw_keys, token_distribution
from jaxspec.speculate.steps import largest
from jaxspec.speculate.tree_rules import sample_candidates
from jaxspec.trees.topology import Tree, is_node, tree_mask

__all__ = [
    "CandidateLaw",
    "Candidates",
    "DraftedTree",
    "Drafter",
    "Levels",
    "TreeLimits",
    "chain_limits",
    "draft_tree",
    "in_levels",
    "propose",
    "tree_limits",
]

# A draft's candidates after each token it was asked about: its likeliest, or sampled without replacement.

#: How candidates are chosen: see `jaxspec.speculate.tree_rules`.
CandidateLaw: TypeAlias = Literal["top", "sampled"]


class Candidates(NamedTuple):
    """Tokens that a draft proposes after some tokens, and how likely it holds them.

    Attributes:
        tokens: all different, rank 0 first.
        distribution: what they were sampled from; None where they are the likeliest.
        log_probability: the draft's, of each.
    """

    tokens: Int[Array, "batch token candidate"]
    distribution: Float[Array, "batch token vocab"] | None
    log_probability: Float[Array, "batch token candidate"]


def propose(
    logits: Float[Array, "batch token vocab"],
    keys: Key[Array, "batch token"] | None,
    decoding: Decoding,
    *,
    count: int,
    law: CandidateLaw,
) -> Candidates:
    """The first `count` candidates after each token.

    Args:
        keys: one per token, read only where candidates are sampled.
        decoding: of the distribution that is sampled from; the likeliest tokens are those of the logits themselves, with
            their probabilities at temperature 1.
    Raises:
        ValueError: more candidates than the vocabulary has tokens.
    """
    if not 1 <= count <= logits.shape[-1]:
        raise ValueError(f"{count} candidates came; a vocabulary of {logits.shape[-1]} allows 1 to that many")
    if law == "top":
        # By the logits: their logarithms of probability may tie where they differ.
        tokens = largest(logits, count)[1]
        log_q = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), tokens, axis=-1)
        return Candidates(tokens.astype(jnp.int32), None, log_q)
    distribution = token_distribution(logits, decoding)
    one = lambda q, key: sample_candidates(q, key, count)
    assert keys is not None
    tokens = jax.vmap(jax.vmap(one))(distribution, keys).astype(jnp.int32)
    chance = jnp.take_along_axis(distribution, tokens, axis=-1)
    return Candidates(tokens, distribution, jnp.log(chance))


@dataclasses.dataclass(frozen=True)
class TreeLimits:
    """Static sizes within which trees share one compilation.

    Attributes:
        nodes: padded size; a verification takes one token more.
        depth: levels.
        ranks: candidates after a node: the largest rank and one.
        width: inner nodes of one level, the tokens of a draft step.
    """

    nodes: int
    depth: int
    ranks: int
    width: int

    @property
    def numbers(self) -> int:
        """Numbers of drafted tokens, root and padding included."""
        return 1 + self.nodes + self.width


def chain_limits(width: int) -> TreeLimits:
    """The sizes of all chains that a verification of `width` tokens has room for, root included."""
    return TreeLimits(nodes=width - 1, depth=width - 1, ranks=1, width=1)


class DraftedTree(NamedTuple):
    """A tree of drafted tokens for each sequence.

    Attributes:
        tree: of a given shape one for all, leaves " node"; of dynamic trees one for each, "batch node".
        tokens: of the nodes.
        candidates: after the root (row 0) and each node i (row i + 1), rank 0 first; rows of leaves are not to be read.
        distribution: what candidates were sampled from; None where they are the likeliest.
    """

    tree: Tree
    tokens: Int[Array, "batch node"]
    candidates: Int[Array, "batch token candidate"]
    distribution: Float[Array, "batch token vocab"] | None


def tree_limits(tree: Tree) -> TreeLimits:
    """The sizes of one tree, or the largest of a stack, on the host."""
    if tree.size == 0:
        return chain_limits(1)
    rows = [np.atleast_2d(np.asarray(leaf)) for leaf in (tree.parent, tree.depth, tree.rank)]
    width = 1
    for parent, depth in zip(rows[0], rows[1]):
        inner = np.unique(parent[parent >= 0])
        width = max(width, int(np.bincount(depth[inner]).max()) if inner.size else 1)
    return TreeLimits(
        nodes=tree.size, depth=max(1, int(rows[1].max())), ranks=max(1, int(rows[2].max()) + 1), width=width
    )


class Levels(NamedTuple):
    """A tree renumbered level by level, inner nodes before leaves, so that what is expanded together is contiguous.

    Attributes:
        tree: the renumbered tree.
        ancestors: of each node the numbers above it (see `Level`), the root's 0 among them; further columns are padding.
        number: the old number of each new node.
        first: first node of depth 1, 2, ...
        inner: nodes with children of each depth.
        levels: depth of the tree.
    """

    tree: Tree
    ancestors: Bool[Array, "node number"]
    number: Int[Array, " node"]
    first: Int[Array, " depth"]
    inner: Int[Array, " depth"]
    levels: Int[Array, ""]


def in_levels(tree: Tree, limits: TreeLimits) -> Levels:
    """Renumber one tree, which keeps to the limits."""
    depth = limits.depth
    node = is_node(tree)
    has_child = jnp.zeros(tree.size, bool).at[jnp.where(node & (tree.parent >= 0), tree.parent, tree.size)]
    has_child = has_child.set(True, mode="drop")
    order = jnp.lexsort((jnp.logical_not(has_child), jnp.where(node, tree.depth, jnp.iinfo(jnp.int32).max)))
    place = jnp.zeros(tree.size, jnp.int32).at[order].set(jnp.arange(tree.size, dtype=jnp.int32))
    parent = jnp.where(tree.parent >= 0, place[jnp.maximum(tree.parent, 0)], tree.parent)[order]
    at_depth = lambda weight: (
        jnp.zeros(depth, jnp.int32).at[jnp.where(node, tree.depth - 1, depth)].add(weight, mode="drop")
    )
    count = at_depth(jnp.ones(tree.size, jnp.int32))
    renumbered = Tree(parent=parent, depth=tree.depth[order], rank=tree.rank[order], num_nodes=tree.num_nodes)
    above = tree_mask(renumbered) & jnp.logical_not(jnp.eye(tree.size, dtype=bool))
    return Levels(
        tree=renumbered,
        ancestors=jnp.pad(above, ((0, 0), (1, limits.width))).at[:, 0].set(True),
        number=order.astype(jnp.int32),
        first=jnp.cumsum(count) - count,
        inner=at_depth(has_child.astype(jnp.int32)),
        levels=jnp.sum(count > 0, dtype=jnp.int32),
    )


class Drafter(NamedTuple):
    """A draft in one cycle: what asking it needs, apart from its memory.

    Attributes:
        ranks: static; candidates after each token.
        law: static; how they are chosen.
    """

    draft: Draft
    params: Any
    root: Root
    seed: Key[Array, ""]
    prompt_ids: Int[Array, " batch"]
    decoding: Decoding
    ranks: int
    law: CandidateLaw

    def _keys(self, depth: Int[Array, ""] | int, tokens: int) -> Key[Array, "batch token"] | None:
        """One for each token of a level; the first one's does not depend on how many there are, so that chains draw alike."""
        if self.law == "top":
            return None
        draw = lambda purpose: draw_keys(self.seed, purpose, self.prompt_ids, self.root.position + depth + 1)
        first = draw(Purpose.DRAFT)[:, None]
        if tokens == 1:
            return first
        further = jnp.arange(1, tokens)
        fold = lambda key: jax.vmap(lambda place: jax.random.fold_in(key, place))(further)
        return jnp.concatenate([first, jax.vmap(fold)(draw(Purpose.BRANCH))], axis=1)

    def open(self, memory: Memory) -> tuple[Candidates, Memory]:
        """Candidates after the root, "batch 1 ..."."""
        logits, memory = self.draft.open(self.params, memory, self.root)
        return propose(logits[:, None], self._keys(0, 1), self.decoding, count=self.ranks, law=self.law), memory

    def extend(self, memory: Memory, level: Level, depth: Int[Array, ""]) -> tuple[Candidates, Memory]:
        """Candidates after each token of a level."""
        logits, memory = self.draft.extend(self.params, memory, self.root, level)
        keys = self._keys(depth, level.tokens.shape[1])
        return propose(logits, keys, self.decoding, count=self.ranks, law=self.law), memory


def draft_tree(
    draft: Draft,
    params: Any,
    memory: Memory,
    root: Root,
    levels: Levels,
    seed: Key[Array, ""],
    prompt_ids: Int[Array, " batch"],
    decoding: Decoding,
    *,
    limits: TreeLimits,
    law: CandidateLaw,
) -> tuple[DraftedTree, Memory]:
    """Draft a tree of a given shape, the same for all sequences; the draft steps once per level, never for a tree without."""
    drafter = Drafter(draft, params, root, seed, prompt_ids, decoding, limits.ranks, law)
    batch, tree = root.token.shape[0], levels.tree
    parent_row, rank = jnp.maximum(tree.parent + 1, 0), jnp.maximum(tree.rank, 0)

    def write(table, proposed, first):
        """The candidates after the tokens of a level, at their numbers."""
        at_first = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=1)
        return jax.tree.map(at_first, table, (proposed.tokens, proposed.distribution))

    def ask_root(_, carry):
        table, memory = carry
        proposed, memory = drafter.open(memory)
        return write(table, proposed, 0), memory

    def ask_level(depth, carry):
        table, memory = carry
        first = levels.first[depth - 1]
        node = jnp.minimum(first + jnp.arange(limits.width), tree.size - 1)
        live = jnp.arange(limits.width) < levels.inner[depth - 1]
        batched = lambda x: jnp.broadcast_to(x, (batch, *x.shape))
        level = Level(
            tokens=table[0][:, parent_row[node], rank[node]],
            first=first + 1,
            depth=batched(jnp.full(limits.width, depth, jnp.int32)),
            parent=batched(jnp.where(live, parent_row[node], 0)),
            ancestors=batched(levels.ancestors[node] & live[:, None]),
        )
        proposed, memory = drafter.extend(memory, level, depth)
        return write(table, proposed, first + 1), memory

    form, _ = jax.eval_shape(drafter.open, memory)
    empty = lambda x: jnp.zeros((batch, limits.numbers, x.shape[2]), x.dtype)
    carry = jax.tree.map(empty, (form.tokens, form.distribution)), memory
    # A loop and not a condition: it leaves the memory in place.
    carry = jax.lax.fori_loop(0, jnp.minimum(levels.levels, 1), ask_root, carry)
    table, memory = jax.lax.fori_loop(1, levels.levels, ask_level, carry)
    candidates, distribution = jax.tree.map(lambda x: x[:, : tree.size + 1], table)
    return DraftedTree(tree, candidates[:, parent_row, rank], candidates, distribution), memory
