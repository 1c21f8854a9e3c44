"""The form to which inputs of matrix products are rounded, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["RESIDUAL_KINDS", "UNROUNDED_BITS", "IntegerKV", "RoundedInputs"]


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
        rotated: rounded after a rotation (see `jaxspec.models.rounded_inputs`).
        spread: rounded in a space that is a parameter of each matrix (see `jaxspec.models.rounded_inputs`).
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


# The form of a KV cache of integers, without the numerics behind it.


@dataclasses.dataclass(frozen=True)
class IntegerKV:
    """How keys and values are rounded before anything reads them (see `jaxspec.models.rounded_inputs`).

    Attributes:
        bits: of an integer, one for each element; the key and the value of each token and head have a scale and a smallest
            value of their own.
        smoothed_keys: keys are divided by scales of their channels first, which are parameters.
        rotated_keys: keys are rounded after a rotation of each head (see `jaxspec.models.rounded_inputs`).
        queries: queries are rounded as keys are, when they are computed; no cache holds them.
        key_share: of the range between the smallest and the largest element of a key, or query, that integers span; of values
            they span all.
    """

    bits: Literal[4, 8]
    smoothed_keys: bool = False
    rotated_keys: bool = False
    queries: bool = False
    key_share: float = 1.0

    def __post_init__(self) -> None:
        if self.queries and self.smoothed_keys:
            raise ValueError(
                "queries and smoothed_keys are both given; scales of smoothed keys belong to queries too, which are rounded "
                "without them: give one of the two"
            )
