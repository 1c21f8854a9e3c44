"""Nested 8-bit weights: the draft reads the upper slice, the target both.

Source: ELMoE-3D (bit-nested weights with LSB augmentation).
"""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.formats import bit_slices
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["BIT_SLICES"]

#: Bits of the draft's slice: half of a weight.
_DRAFT_BITS = 4.0


def _footprint(knobs: Mapping[str, float]) -> Footprint:
    del knobs
    found = bit_slices.expected_bits(1.0, _DRAFT_BITS)  # type: ignore[arg-type]
    return uniform(float(found.draft), float(found.draft) + float(found.rest))


#: The scheme.
BIT_SLICES = StoredForm(SCHEME_FACTS["bit-slices"], _footprint)
