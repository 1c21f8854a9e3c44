"""The form to which inputs of matrix products are rounded, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["RESIDUAL_KINDS", "UNROUNDED_BITS", "RoundedInputs"]

#: Bits of activations that nothing rounds.
UNROUNDED_BITS = 16

#: Matrices of which the outputs go to the residual stream. Their inputs are made within a block, so that no norm stands
#: before them: methods that rotate the residual stream treat them apart.
RESIDUAL_KINDS = ("o", "down", "expert_down", "shared_down")


@dataclasses.dataclass(frozen=True)
class RoundedInputs:
    """How activations are rounded before a layer's matrices multiply them (see `jaxspec.models.rounded_inputs`).

    Attributes:
        bits: of a signed integer, one for each element; each token has a scale of its own, by its largest element.
        scaled: rounded after a division by the matrix's scales of its input channels, which are parameters.
        rotated: rounded after a rotation (see `jaxspec.models.rotated_rows`).
        spread: rounded in a space that is a parameter of each matrix (see `jaxspec.models.spread_rows`).
        range_share: None: integers are symmetric. A share: they are asymmetric, between the token's smallest and largest
            element times it.
        residual: another form for the matrices of `RESIDUAL_KINDS`; None: this one.
    """

    bits: Literal[4, 8]
    scaled: bool = False
    rotated: bool = False
    spread: bool = False
    range_share: float | None = None
    residual: RoundedInputs | None = None

    def of(self, kind: str) -> RoundedInputs:
        """The form of what enters one kind of matrix."""
        return self.residual if self.residual is not None and kind in RESIDUAL_KINDS else self
