"""Nothing compressed: the draft is the target."""

from __future__ import annotations

from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["BF16", "RAW"]

#: 16 bits for everything.
BF16 = Scheme(SCHEME_FACTS["bf16"], lambda knobs, dtype: uniform(16.0, 16.0))

#: The same in a file, whatever the tensors' types.
RAW = Scheme(SCHEME_FACTS["raw"], lambda knobs, dtype: uniform(16.0, 16.0))
