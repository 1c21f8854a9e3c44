"""A second set of experts that a router may choose from, for pools of a fractional size."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Bool, Float

__all__ = ["MoreExperts"]


class MoreExperts(NamedTuple):
    """A larger pool beside the one that is allowed: what is computed is a blend of both.

    Attributes:
        allowed: as `allowed_experts`.
        weight: of what is computed with the larger pool, 0 to 1; the rest is the smaller one's.
    """

    allowed: Bool[Array, "*layer batch token expert"]
    weight: Float[Array, "*layer"]
