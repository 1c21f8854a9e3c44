"""What every scheme, draft, compute unit and device keeps to, for members of your own: `check_scheme(MY_SCHEME)`.

Each function raises AssertionError where a member does not keep the contract. The tests of this package run the same ones.
"""

from jaxspec.testing.drafts import check_draft
from jaxspec.testing.schemes import check_scheme
from jaxspec.testing.units import check_device, check_unit

__all__ = ["check_device", "check_draft", "check_scheme", "check_unit"]
