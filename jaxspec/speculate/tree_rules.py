"""The rules of tree verification: which path is accepted, and what is drawn where all candidates are refused.

Below an accepted node the draft's candidates are tried in the order of their ranks. Each is accepted with probability
min(1, p / q), where p is what is left of the target's distribution (the residual after each refusal) and q the law that the
candidate was drawn by, given the candidates before it. Two laws of candidates:

* the draft's likeliest tokens: each is certain, so that q is 1 at it. This admits trees that are shaped by the draft's
  probabilities, and greedy decoding is the case in which p is one-hot;
* tokens sampled without replacement: q is the draft's distribution without the candidates before it.

Either way the output has the target's distribution, whatever the draft is. A candidate that the tree leaves out is known but
not tried: q goes on without it, p does not change.

Source: SpecInfer, Miao et al. 2024, Algorithm 2 (multi-step speculative sampling); Jeon et al. 2024, arXiv:2402.14160
    (recursive rejection sampling without replacement).
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.speculate.steps import largest
from jaxspec.trees.topology import PADDING, Tree, is_node

__all__ = [
    "SiblingChances",
    "TreeVerdict",
    "acceptance_probability",
    "candidate_law",
    "nodes_by_rank",
    "residual_distribution",
    "sample_candidates",
    "sibling_chances",
    "verify_greedily",
    "verify_tree",
]

# The rules of one drafted token: when it is accepted, and what is drawn where it is refused.


def acceptance_probability(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """Probability that each token, once drafted, is accepted: min(1, p / q); 1 where it is never drafted."""
    drafted = draft > 0
    return jnp.where(drafted, jnp.minimum(target / jnp.where(drafted, draft, 1.0), 1.0), 1.0)


def residual_distribution(
    target: Float[Array, "*b vocab"], draft: Float[Array, "*b vocab"]
) -> Float[Array, "*b vocab"]:
    """Distribution to draw from after a refusal: max(p − q, 0), normalised; p itself where nothing is left (then p = q)."""
    excess = jnp.maximum(target - draft, 0.0)
    total = jnp.sum(excess, axis=-1, keepdims=True)
    return jnp.where(total > 0, excess / jnp.where(total > 0, total, 1.0), target)


class TreeVerdict(NamedTuple):
    """Outcome of one verification.

    Attributes:
        accepted: drafted tokens accepted, 0 to the depth of the tree.
        path: accepted nodes from depth 1 on, then `PADDING`.
        next_token: drawn after them: from what the refused candidates left, or from the target where none was tried.
    """

    accepted: Int[Array, ""]
    path: Int[Array, " depth"]
    next_token: Int[Array, ""]


class SiblingChances(NamedTuple):
    """Chances of the candidates of one node.

    Attributes:
        chance: of each to be accepted once all tried before it are refused; 0 where it is not tried.
        residual: what to draw from where all that are tried are refused.
    """

    chance: Float[Array, " candidate"]
    residual: Float[Array, " vocab"]


def sample_candidates(
    distribution: Float[Array, "*b vocab"], key: Key[Array, ""], count: int
) -> Int[Array, "*b candidate"]:
    """Tokens sampled one after the other without replacement, in this order.

    The largest of log q + Gumbel noise are exactly that (Vieira 2014; Kool et al. 2019, arXiv:1903.06059). Where the
    distribution has fewer tokens than are asked for, the first of the others by number follow.

    Args:
        key: typed; all leading axes draw from it.
        count: static, 1 to the vocabulary.
    """
    noise = jax.random.gumbel(key, distribution.shape, distribution.dtype)
    return largest(jnp.log(distribution) + noise, count)[1]


def candidate_law(
    draft: Float[Array, " vocab"] | None, before: Int[Array, " candidate"], place: Int[Array, ""] | int, vocab: int
) -> Float[Array, " vocab"]:
    """The law of the candidate at `place`, given those before it: q of the acceptance rule.

    Args:
        draft: what candidates were sampled from without replacement; None where they are the draft's likeliest tokens.
        before: all candidates of the parent, in order.
    """
    before = jnp.asarray(before, jnp.int32)
    dtype = jnp.float32 if draft is None else draft.dtype
    certain = jax.nn.one_hot(before[place], vocab, dtype=dtype)
    if draft is None:
        return certain
    if before.shape[0] == 1:
        return draft
    drawn = jnp.where(jnp.arange(before.shape[0], dtype=jnp.int32) < place, before, vocab)
    left = draft.at[drawn].set(0.0, mode="drop")
    total = jnp.sum(left)
    # Nothing left: the sampler then takes the first of the other tokens, which is certain.
    return jnp.where(total > 0, left / jnp.where(total > 0, total, 1.0), certain)


def sibling_chances(
    target: Float[Array, " vocab"],
    draft: Float[Array, " vocab"] | None,
    candidates: Int[Array, " candidate"],
    tried: Bool[Array, " candidate"],
) -> SiblingChances:
    """Try the candidates of one node in order.

    Args:
        target: the target's distribution after the node.
        draft: see `candidate_law`.
        candidates: distinct tokens, rank 0 first.
        tried: whether each is in the tree.
    """
    vocab = target.shape[0]

    def attempt(residual, place):
        law = candidate_law(draft, candidates, place, vocab).astype(target.dtype)
        chance = acceptance_probability(residual, law)[candidates[place]]
        refused = jnp.where(tried[place], residual_distribution(residual, law), residual)
        return refused, jnp.where(tried[place], chance, 0.0)

    residual, chance = jax.lax.scan(attempt, target, jnp.arange(candidates.shape[0], dtype=jnp.int32))
    return SiblingChances(chance=chance, residual=residual)


def nodes_by_rank(tree: Tree, ranks: int) -> Int[Array, "token rank"]:
    """The child of the root (row 0) and of each node i (row i + 1) that has a rank, or `PADDING`.

    Args:
        tree: one tree.
        ranks: static; columns. Nodes of a rank beyond them are left out.
    """
    row = jnp.where(is_node(tree), tree.parent + 1, tree.size + 1)  # padding falls out of the table
    table = jnp.full((tree.size + 1, ranks), PADDING, jnp.int32)
    return table.at[row, tree.rank].set(jnp.arange(tree.size, dtype=jnp.int32), mode="drop")


def verify_tree(
    tree: Tree,
    target: Float[Array, "token vocab"],
    draft: Float[Array, "token vocab"] | None,
    candidates: Int[Array, "token candidate"],
    uniforms: Float[Array, "depth candidate"],
    next_key: Key[Array, ""],
) -> TreeVerdict:
    """Accept a path from the root and draw the token after it.

    Args:
        tree: one tree; token 0 is the root and token i + 1 node i, everywhere.
        target: the target's distribution after each token.
        draft: the draft's, where candidates were sampled from it; None where they are its likeliest tokens.
        candidates: tokens that the draft proposes after each token, rank 0 first, all different; rows of leaves are not read.
        uniforms: in [0, 1), one per depth and rank; the static depth bounds that of the tree.
    """
    chex.assert_rank([target, candidates, uniforms], 2)
    # Token 0 is the root: one row more than there is room for nodes.
    chex.assert_axis_dimension(target, 0, tree.size + 1)
    chex.assert_equal_shape_prefix([target, candidates], 1)
    depths, ranks = uniforms.shape
    if depths == 0:
        return TreeVerdict(jnp.int32(0), jnp.zeros(0, jnp.int32), jax.random.categorical(next_key, jnp.log(target[0])))
    children = nodes_by_rank(tree, ranks)

    def descend(carry):
        depth, row, path, _, _ = carry
        tried = children[row] != PADDING
        law = None if draft is None else draft[row]
        chances = sibling_chances(target[row], law, candidates[row], tried)
        passed = uniforms[depth] < chances.chance
        going = jnp.any(passed)
        node = jnp.where(going, children[row, jnp.argmax(passed)], PADDING)
        row = jnp.where(going, node + 1, row)
        # After an accepted node the target's own distribution counts, should nothing be tried below it.
        return (
            depth + going.astype(jnp.int32),
            row,
            path.at[depth].set(node),
            jnp.where(going, target[row], chances.residual),
            going,
        )

    start = (jnp.int32(0), jnp.int32(0), jnp.full(depths, PADDING, jnp.int32), target[0], jnp.asarray(True))
    goes_on = lambda carry: carry[-1] & (carry[0] < depths)
    accepted, _, path, residual, _ = jax.lax.while_loop(goes_on, descend, start)
    return TreeVerdict(accepted=accepted, path=path, next_token=jax.random.categorical(next_key, jnp.log(residual)))


def verify_greedily(
    tree: Tree,
    choice: Int[Array, " token"],
    candidates: Int[Array, "token candidate"],
    sees: Bool[Array, "token token"],
    *,
    depths: int,
) -> TreeVerdict:
    """`verify_tree` of a target that is sure of one token after each: the path that it would have gone itself.

    Nothing is drawn and nothing waits for the node above: on CPUs a loop over depths takes as long as
    the products of a short step.

    Args:
        tree, candidates: see `verify_tree`.
        choice: the target's token after the root (place 0) and each node i (place i + 1).
        sees: which tokens lie above each, itself included (`jaxspec.trees.topology.verification_mask`).
        depths: static; bounds the depth of the tree.
    """
    chex.assert_axis_dimension(choice, 0, tree.size + 1)
    node, parent_row = is_node(tree), jnp.maximum(tree.parent + 1, 0)
    chosen = candidates[parent_row, jnp.maximum(tree.rank, 0)] == choice[parent_row]
    agrees = jnp.append(jnp.asarray([True]), chosen)
    reached = jnp.all(agrees[None] | jnp.logical_not(sees), axis=1)[1:] & node
    at_depth = reached[None] & (tree.depth[None] == 1 + jnp.arange(depths)[:, None])
    path = jnp.max(jnp.where(at_depth, jnp.arange(tree.size)[None], PADDING), axis=1, initial=PADDING)
    accepted = jnp.sum(path >= 0, dtype=jnp.int32)
    return TreeVerdict(accepted, path.astype(jnp.int32), choice[jnp.max(path, initial=-1) + 1])
