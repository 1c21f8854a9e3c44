"""Weights in few bits, the same for draft and target: groups with a scale, MX elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwmodels import Footprint
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.formats import group_quantization, mx
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["MXFP4", "MXFP8", "Q4_0", "Q8_0"]


def _of(bits: Callable[[], float]) -> Callable[[Mapping[str, float]], Footprint]:
    return lambda knobs: uniform(bits(), bits())


#: See its title.
Q8_0 = StoredForm(SCHEME_FACTS["q8_0"], _of(lambda: float(group_quantization.expected_bits(1.0, 8.0))))  # type: ignore[arg-type]
#: See its title.
Q4_0 = StoredForm(SCHEME_FACTS["q4_0"], _of(lambda: float(group_quantization.expected_bits(1.0, 4.0))))  # type: ignore[arg-type]
#: See its title.
MXFP8 = StoredForm(SCHEME_FACTS["mxfp8"], _of(lambda: float(mx.expected_bits(8.0))))
#: See its title.
MXFP4 = StoredForm(SCHEME_FACTS["mxfp4"], _of(lambda: float(mx.expected_bits(4.0))))
