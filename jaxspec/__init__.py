"""jaxspec: which draft to build for speculative decoding of a language model on a given device.

`import jaxspec as js`: a function for each command (`js.tune`, `js.predict`, ...), which takes the command's settings as
keywords and returns results with tables and figures; `js.device`, `js.architecture` and `js.scheme` by name or path, and
`js.devices()`, `js.architectures()`, `js.schemes()` and `js.drafts()` for the names that there are; `js.load` opens a network,
`js.open_result` the result of a run, `js.inspect` and `js.unpack` a container; `js.runs` lists run directories; `js.register`
adds a scheme, a draft, a device, a command, ... of your own. `js.price(case, plan)` is the cost of a `js.Plan` on a `js.Case`:
differentiable, and mapped by `vmap`; `js.chain_plan(4.0)` is the plan of a chain of 4 drafted tokens.

The rooms: `formats` (bits), `models` (networks), `compress` (knobs to drafts), `speculate` (decoding and its acceptance),
`trees`, `tuning` (the objective and its gradient), `studies` (the commands), `settings`, `results`, `runs`, `report`, `text`,
`api` (what is named above), `cli`. `hwmodels` is the hardware side.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxspec.api import (
        Case,
        Plan,
        Workload,
        architecture,
        architectures,
        chain_plan,
        device,
        devices,
        drafts,
        inspect,
        load,
        open_result,
        price,
        resume,
        scheme,
        schemes,
        unpack,
    )
    from jaxspec.registries import register

# What XLA reads at its first program is set by `hwmodels`. Rooms that do not import it need it too, and importing all of it
# here would take a second.
_hardware_models = importlib.util.find_spec("hwmodels")
if _hardware_models is not None and _hardware_models.origin is not None:
    runpy.run_path(str(Path(_hardware_models.origin).with_name("xla_flags.py")))

#: Version of the installed package.
__version__: str

__all__ = [
    "Case",
    "Plan",
    "Workload",
    "__version__",
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
    "register",
    "resume",
    "scheme",
    "schemes",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("jaxspec")
    if name == "register":
        return importlib.import_module("jaxspec.registries").register
    if name == "runs":
        return importlib.import_module("jaxspec.runs")
    if name in __all__:
        return getattr(importlib.import_module("jaxspec.api"), name)
    from jaxspec.studies.study import STUDIES

    if name not in STUDIES:
        from jaxspec.errors import question

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{question(name, __dir__())}")
    from jaxspec.api.calls import study_call

    return study_call(name)


def __dir__() -> list[str]:
    from jaxspec.studies.study import STUDIES

    return sorted({*__all__, *STUDIES.names(), "runs"})
