"""Tree attention: which drafted tokens see which, and their positions.

Source: SpecInfer, Miao et al. 2024 (tree attention): all nodes are verified in one step, each attending to the committed
tokens, to its ancestors and to itself. The committed tokens are seen by every node and are not part of these masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxspec.trees.topology import Tree, is_node, one_tree

__all__ = ["ancestor_steps", "tree_mask", "tree_positions", "verification_mask", "verification_positions"]


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
