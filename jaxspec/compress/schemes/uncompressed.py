"""Nothing compressed: the draft is the target."""

from __future__ import annotations

from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes.stored_form import StoredForm
from jaxspec.settings.schemes import SCHEME_FACTS

__all__ = ["BF16", "RAW"]

#: 16 bits for everything.
BF16 = StoredForm(SCHEME_FACTS["bf16"], lambda knobs: uniform(16.0, 16.0))

#: The same in a file, whatever the tensors' types.
RAW = StoredForm(SCHEME_FACTS["raw"], lambda knobs: uniform(16.0, 16.0))
