"""Plans: the tokens that one cycle drafts and verifies.

A tree is an array `parent`: node i was drafted after node parent[i], or after the last committed token where that is `ROOT`.
Parents come before their children, so nodes are numbered from 0 in an order in which they can be drafted.

Draft trees: expected tokens of a cycle, for any topology.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.numerics.fields import AMOUNT, AT_LEAST_ONE, CHANCE, NOT_NEGATIVE, check_number, number
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = [
    "ROOT",
    "Plan",
    "TreeShape",
    "block_plan",
    "chain_plan",
    "expected_tree_tokens",
    "node_depths",
    "plan_family",
    "tree_plan",
    "tree_shape",
]

#: Parent of a tree's node that follows the last committed token.
ROOT = -1


@flax.struct.dataclass
class Plan:
    """Tokens that a cycle drafts and verifies; or a family of cycles, "*b", that take the same kinds of draft steps.

    `chain_plan`, `block_plan` and `tree_plan` make one, `plan_family` joins several. Every field is a leaf; counts are real.
    """

    draft_tokens: Leaf = number(AT_LEAST_ONE)  # " step": tokens per sequence of a draft step of each kind, >= 1
    draft_visible: Leaf = number(AMOUNT)  # " step": new tokens that each of them sees, itself included
    draft_repeats: Leaf = number(NOT_NEGATIVE)  # "*b step": how often a cycle takes such a step, >= 0
    verify_tokens: Leaf = number(AT_LEAST_ONE)  # "*b": per sequence, the last accepted one included, >= 1
    verify_visible: Leaf = number(AMOUNT)  # "*b": new tokens that a verified one sees on average, itself included


def chain_plan(draft_length: Number) -> Plan:
    """A chain of `draft_length` ("*b", >= 0, fractions too) drafted tokens, all verified at once behind the last accepted one.

    A draft length of 0 is one step of autoregressive decoding. Gradient: by the draft length, as all counts are linear in it.

    Raises:
        ValueError: a draft length that is no finite number >= 0.
    """
    check_number("draft_length", draft_length, NOT_NEGATIVE)
    length = jnp.asarray(as_float(draft_length))
    return Plan(
        draft_tokens=jnp.ones(1, length.dtype),
        draft_visible=jnp.ones(1, length.dtype),
        draft_repeats=length[..., None],
        verify_tokens=length + 1.0,
        verify_visible=(length + 2.0) / 2.0,
    )


def block_plan(draft_length: Number) -> Plan:
    """A chain of `draft_length` (one number, or "length") tokens that one pass drafts.

    The pass runs on the committed token and a place for each drafted one. Each length is a draft step of a kind of its own.
    Gradient: by the draft length from 1 on. Errors: as of `chain_plan`.
    """
    check_number("draft_length", draft_length, NOT_NEGATIVE)
    length = jnp.asarray(as_float(draft_length))
    each = jnp.atleast_1d(length)
    return dataclasses.replace(
        chain_plan(length),
        draft_tokens=each + 1.0,
        draft_visible=(each + 2.0) / 2.0,
        draft_repeats=jnp.reshape(jnp.diag(jnp.minimum(each, 1.0)), (*length.shape, each.size)),
    )


def tree_plan(parent: Sequence[int] | Int[np.ndarray, " node"]) -> Plan:
    """A tree: a draft step for each of its depths, all nodes verified at once behind the last accepted token.

    The draft first runs on the committed token, then once for each depth on the nodes that have children; siblings do not see
    each other. Steps of as many tokens are one kind.

    Args:
        parent: static "node", each `ROOT` or an earlier node.
    Raises:
        ValueError: no node, or a parent that is not an earlier one.
    """
    shape = tree_shape(parent)
    tokens, repeats = np.unique(shape.expanded, return_counts=True)
    return Plan(
        draft_tokens=tokens.astype(np.float32),
        draft_visible=np.ones(tokens.size, np.float32),
        draft_repeats=repeats.astype(np.float32),
        verify_tokens=np.float32(shape.depth.size + 1),
        verify_visible=np.float32(shape.visible_tokens),
    )


def plan_family(plans: Sequence[Plan]) -> Plan:
    """Single plans as one family, "plan", so that a draft step that several of them take is priced once; on the host.

    Args:
        plans: one or more, of known numbers.
    """
    numbers = [[np.atleast_1d(np.asarray(leaf, np.float32)) for leaf in vars(plan).values()] for plan in plans]
    kinds = sorted({kind for tokens, visible, *_ in numbers for kind in zip(tokens.tolist(), visible.tolist())})
    repeats = np.zeros((len(plans), len(kinds)), np.float32)
    for row, (tokens, visible, counts, *_) in zip(repeats, numbers, strict=True):
        for kind, count in zip(zip(tokens.tolist(), visible.tolist()), counts, strict=True):
            row[kinds.index(kind)] += count
    return Plan(
        draft_tokens=np.array([tokens for tokens, _ in kinds], np.float32),
        draft_visible=np.array([visible for _, visible in kinds], np.float32),
        draft_repeats=repeats,
        verify_tokens=np.concatenate([tokens for *_, tokens, _ in numbers]),
        verify_visible=np.concatenate([visible for *_, visible in numbers]),
    )


@flax.struct.dataclass
class TreeShape:
    """Cost of a topology, as numbers."""

    depth: Int[np.ndarray, " node"]  # 1 for children of the root
    expanded: Int[np.ndarray, " step"]  # tokens of each draft step: 1, then inner nodes of depth 1, 2, ...
    visible_tokens: Float[np.ndarray, ""]  # new tokens that a verified one sees on average, root included


def tree_shape(parent: Sequence[int] | Int[np.ndarray, " node"]) -> TreeShape:
    """Depths and draft steps of a tree, on the host.

    Args:
        parent: "node", each `ROOT` or an earlier node.
    Raises:
        ValueError: no node, or a parent that is not an earlier one.
    """
    depth = node_depths(parent)
    parents = np.asarray(parent)
    inner = np.unique(parents[parents != ROOT])
    expanded = np.bincount(depth[inner], minlength=int(depth.max()))[1 : int(depth.max())]
    return TreeShape(
        depth=depth,
        expanded=np.concatenate([[1], expanded]),
        visible_tokens=np.asarray((1 + np.sum(depth + 1)) / (parents.size + 1)),
    )


def node_depths(parent: Sequence[int] | Int[np.ndarray, " node"]) -> Int[np.ndarray, " node"]:
    """Depth of each node, 1 for children of the root, on the host.

    Raises:
        ValueError: no node, or a parent that is not an earlier one.
    """
    parents = np.asarray(parent)
    if parents.ndim != 1 or parents.size == 0 or not np.issubdtype(parents.dtype, np.integer):
        raise ValueError(f"parent is {parent!r}; it must be a list of one or more whole numbers: {ROOT} is the root")
    depth = np.zeros(parents.size, np.int64)
    for node, above in enumerate(parents.tolist()):
        if not ROOT <= above < node:
            raise ValueError(
                f"parent[{node}] is {above}; allowed are {ROOT} (the root) to {node - 1}: number parents first"
            )
        depth[node] = 1 + (depth[above] if above != ROOT else 0)
    return depth


def expected_tree_tokens(
    parent: Sequence[int] | Int[np.ndarray, " node"], node_acceptance: Float[Array, "*b node"]
) -> Float[Array, "*b"]:
    """Expected tokens per cycle: 1 plus, for each node, the probability that it and all above it are accepted.

    Args:
        parent: static "node".
        node_acceptance: "*b node", in [0, 1]; P(node accepted | its parent accepted). At most one child of a parent is
            accepted, so that those of siblings sum to at most 1.
    Raises:
        ValueError: a parent that is not an earlier node, another number of nodes, or what is no chance.
    """
    node_depths(parent)  # refuses what is no tree
    listed = isinstance(node_acceptance, list)
    check_number("node_acceptance", np.asarray(node_acceptance) if listed else node_acceptance, CHANCE)
    chances = jnp.asarray(as_float(node_acceptance))
    if chances.ndim == 0 or chances.shape[-1] != len(parent):
        raise ValueError(f"node_acceptance has shape {chances.shape}; its last axis must be the {len(parent)} nodes")
    reached: list[Array] = []
    for node, above in enumerate(np.asarray(parent).tolist()):
        reached.append(chances[..., node] * (reached[above] if above != ROOT else 1.0))
    return 1.0 + jnp.sum(jnp.stack(reached, axis=-1), axis=-1)
