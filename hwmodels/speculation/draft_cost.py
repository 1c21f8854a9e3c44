"""What a draft is to the cost model: its shapes and how often it runs."""

from __future__ import annotations

import flax.struct

from hwmodels.network.architecture import Architecture
from hwmodels.numerics.scalars import Leaf

__all__ = ["DraftCost"]


@flax.struct.dataclass
class DraftCost:
    """Shapes of a draft and the forward passes that a draft step takes. Its widths are the footprint's `draft_*`.

    Every field but the statement is a leaf, "*b", or a tree of leaves.
    """

    architecture: Architecture | None = None  # None: the target's own shapes, a compressed copy of it
    passes: Leaf = 1.0  # forward passes per draft step, >= 0; 0: a lookup, which takes no time
    shares_ends: Leaf = 0.0  # 1: embedding and LM head are the target's, which holds them already; 0: the draft's own
    statement: str = flax.struct.field(pytree_node=False, default="a compressed copy of the target")  # for a reader
