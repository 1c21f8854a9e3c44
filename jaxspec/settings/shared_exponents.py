"""The form of values whose blocks share an exponent, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["Rounding", "SharedExponents"]

#: What becomes of bits that do not fit.
Rounding = Literal["toward_zero", "nearest_even"]


@dataclasses.dataclass(frozen=True)
class SharedExponents:
    """How 32 consecutive values of a row are stored with one exponent (see `jaxspec.formats.mx_truncated`).

    Attributes:
        mantissa_bits: of an element, leading one included; a sign comes on top.
        rounding: of what a value loses beside a larger one of its block.
    """

    mantissa_bits: int
    rounding: Rounding
