"""What `import jaxspec as js` offers: a function per study, devices, architectures, schemes, and results that show themselves.

`jaxspec` itself imports these when they are first used.
"""

from hwmodels import Case, Plan, Workload, chain_plan, price
from jaxspec.api.calls import open_result, resume, study_call
from jaxspec.api.parts import (
    SchemeCard,
    architecture,
    architectures,
    device,
    devices,
    drafts,
    inspect,
    load,
    scheme,
    schemes,
    unpack,
)
from jaxspec.api.results import StudyResults

__all__ = [
    "Case",
    "Plan",
    "SchemeCard",
    "StudyResults",
    "Workload",
    "architecture",
    "architectures",
    "chain_plan",
    "device",
    "devices",
    "drafts",
    "inspect",
    "load",
    "open_result",
    "price",
    "resume",
    "scheme",
    "schemes",
    "study_call",
    "unpack",
]
