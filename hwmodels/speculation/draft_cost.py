"""What a draft is to the cost model: its shapes and how often it runs."""

from __future__ import annotations

import flax.struct
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import Footprint
from hwmodels.network.workload import Workload
from hwmodels.numerics.scalars import Leaf, as_float
from hwmodels.step.capacity import held_bytes

__all__ = ["COMPRESSED_COPY", "DraftCost", "held_with_draft"]


@flax.struct.dataclass
class DraftCost:
    """Shapes of a draft and the forward passes that a draft step takes. Its widths are the footprint's `draft_*`.

    Every field but the statement is a leaf, "*b", or a tree of leaves.
    """

    architecture: Architecture | None = None  # None: the target's own shapes, a compressed copy of it
    passes: Leaf = 1.0  # forward passes per draft step, >= 0; 0: a lookup, which takes no time
    shares_ends: Leaf = 0.0  # 1: embedding and LM head are the target's, which holds them already; 0: the draft's own
    statement: str = flax.struct.field(pytree_node=False, default="a compressed copy of the target")  # for a reader


#: The draft unless another is given: a compressed copy of the target, which runs once per draft step.
COMPRESSED_COPY = DraftCost()


def held_with_draft(
    architecture: Architecture, *, workload: Workload, footprint: Footprint, draft_cost: DraftCost
) -> Float[Array, "*b"]:
    """Bytes of weights and KV of the target as they are stored, and of a draft that is a network of its own.

    Args:
        architecture, workload, footprint, draft_cost: leaves "*b".
    """
    load = {"batch": workload.batch, "context_tokens": workload.context_tokens}
    target = held_bytes(
        architecture, **load, weight_bits=footprint.target_weight_bits, kv_bits=footprint.target_kv_bits
    ).total
    if draft_cost.architecture is None:
        return target
    bits, own_ends = footprint.draft_weight_bits, 1.0 - as_float(draft_cost.shares_ends)
    bits = bits | {end: as_float(bits[end]) * own_ends for end in ("embed", "lm_head")}
    return target + held_bytes(draft_cost.architecture, **load, weight_bits=bits, kv_bits=footprint.draft_kv_bits).total
