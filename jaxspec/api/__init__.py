"""What `import jaxspec as js` offers: a function per study, devices, architectures, schemes, and results that show themselves.

`jaxspec` itself imports these when they are first used.
"""

from hwmodels import Case, Plan, price
from jaxspec.api.calls import study_call
from jaxspec.api.containers import inspect, unpack
from jaxspec.api.kept import open_result, resume
from jaxspec.api.parts import architecture, device
from jaxspec.api.results import StudyResults
from jaxspec.api.schemes import SchemeCard, scheme

__all__ = [
    "Case",
    "Plan",
    "SchemeCard",
    "StudyResults",
    "architecture",
    "device",
    "inspect",
    "open_result",
    "price",
    "resume",
    "scheme",
    "study_call",
    "unpack",
]
