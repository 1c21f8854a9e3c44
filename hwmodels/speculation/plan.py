"""What one cycle drafts and verifies, and what a network accepts of it."""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import numpy as np
from jaxtyping import Int

from hwmodels.numerics.scalars import Leaf, Number, as_float

#: Parent of a tree's node that follows the last committed token.
ROOT = -1


@flax.struct.dataclass
class Acceptance:
    """What a network accepts; each field is a leaf in [0, 1], or None where a study has no draft of that kind."""

    conditional: Leaf = None  # chains: P(position accepted | all before it accepted), "*b position"
    node: Leaf = None  # trees: P(node accepted | its parent accepted), "*b node"; those of siblings sum to at most 1


@flax.struct.dataclass
class DraftPlan:
    """What one cycle drafts and verifies: `chain_plan` and `tree_plan` make it.

    Raises:
        NotImplementedError: `kind` is neither "chain" nor "tree".
        ValueError: a tree without parents, or parents of a chain.
    """

    draft_length: Leaf  # draft steps per cycle (gamma); of a tree its depth
    verify_tokens: Leaf  # tokens of one verification, the last accepted one included
    kind: str = flax.struct.field(pytree_node=False, default="chain")
    parent: tuple[int, ...] | None = flax.struct.field(pytree_node=False, default=None)  # of each node of a tree

    def __post_init__(self) -> None:
        if self.kind not in ("chain", "tree"):
            raise NotImplementedError(
                f"draft plan of kind {self.kind!r}: 'chain' and 'tree' are modelled; use chain_plan or tree_plan"
            )
        if (self.kind == "tree") != (self.parent is not None):
            raise ValueError(f"a {self.kind} came with parent {self.parent!r}; only trees have parents: use tree_plan")


def chain_plan(draft_length: Number) -> DraftPlan:
    """A chain of `draft_length` ("*b", >= 0) drafted tokens, all verified at once behind the last accepted one."""
    length = as_float(draft_length)
    return DraftPlan(draft_length=length, verify_tokens=length + 1.0)


def tree_plan(parent: Sequence[int] | Int[np.ndarray, " node"]) -> DraftPlan:
    """A tree: a draft step for each of its depths, all nodes verified at once behind the last accepted token.

    Args:
        parent: static "node", each `ROOT` or an earlier node.
    Raises:
        ValueError: no node, or a parent that is not an earlier one.
    """
    depth = node_depths(parent)
    nodes = tuple(int(above) for above in parent)
    return DraftPlan(
        draft_length=as_float(int(depth.max())), verify_tokens=as_float(len(nodes) + 1), kind="tree", parent=nodes
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
