"""The form to which inputs of matrix products are rounded, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["UNROUNDED_BITS", "RoundedInputs"]

#: Bits of activations that nothing rounds.
UNROUNDED_BITS = 16


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
    """

    bits: Literal[4, 8]
    scaled: bool = False
    rotated: bool = False
    spread: bool = False
    range_share: float | None = None
