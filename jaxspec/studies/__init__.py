"""What users ask for, a package each: `tune(TuneConfig(...))`, `evaluate`, `search_tree`, `predict`, `sweep`, ...

Names are imported when they are first used, so that settings do not load JAX.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxspec.studies.codesign.config import CodesignConfig
    from jaxspec.studies.codesign.run import codesign
    from jaxspec.studies.compare.config import CompareConfig
    from jaxspec.studies.compare.run import compare
    from jaxspec.studies.evaluate.config import EvaluateConfig
    from jaxspec.studies.evaluate.run import evaluate
    from jaxspec.studies.export.config import ExportConfig
    from jaxspec.studies.export.run import export_draft
    from jaxspec.studies.pack.config import PackConfig
    from jaxspec.studies.pack.inspection import inspect_file
    from jaxspec.studies.pack.run import pack_checkpoint, unpack_container
    from jaxspec.studies.predict.config import PredictConfig
    from jaxspec.studies.predict.run import predict
    from jaxspec.studies.scale.config import ScaleConfig
    from jaxspec.studies.scale.run import scale
    from jaxspec.studies.serve.config import ServeConfig
    from jaxspec.studies.serve.run import serve
    from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config
    from jaxspec.studies.sweep.merging import merge_sweeps
    from jaxspec.studies.sweep.points_file import read_sweep
    from jaxspec.studies.sweep.run import sweep
    from jaxspec.studies.tree.config import TreeConfig
    from jaxspec.studies.tree.run import search_tree
    from jaxspec.studies.tune.config import TuneConfig
    from jaxspec.studies.tune.run import tune

__all__ = [
    "CodesignConfig",
    "CompareConfig",
    "EvaluateConfig",
    "ExportConfig",
    "PackConfig",
    "PredictConfig",
    "ScaleConfig",
    "ServeConfig",
    "SweepConfig",
    "TreeConfig",
    "TuneConfig",
    "codesign",
    "compare",
    "evaluate",
    "export_draft",
    "inspect_file",
    "merge_sweeps",
    "pack_checkpoint",
    "predict",
    "read_sweep",
    "read_sweep_config",
    "scale",
    "search_tree",
    "serve",
    "sweep",
    "tune",
    "unpack_container",
]

#: Module of each public name, below this package.
_PLACES = {
    "CompareConfig": "compare.config",
    "CodesignConfig": "codesign.config",
    "EvaluateConfig": "evaluate.config",
    "ExportConfig": "export.config",
    "PackConfig": "pack.config",
    "PredictConfig": "predict.config",
    "ScaleConfig": "scale.config",
    "ServeConfig": "serve.config",
    "SweepConfig": "sweep.config",
    "TreeConfig": "tree.config",
    "TuneConfig": "tune.config",
    "compare": "compare.run",
    "codesign": "codesign.run",
    "evaluate": "evaluate.run",
    "export_draft": "export.run",
    "inspect_file": "pack.inspection",
    "merge_sweeps": "sweep.merging",
    "pack_checkpoint": "pack.run",
    "predict": "predict.run",
    "read_sweep": "sweep.points_file",
    "read_sweep_config": "sweep.config",
    "scale": "scale.run",
    "search_tree": "tree.run",
    "serve": "serve.run",
    "sweep": "sweep.run",
    "tune": "tune.run",
    "unpack_container": "pack.run",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


class _Package(types.ModuleType):
    """This package, in which `tune` is the function, whether or not the folder of that name was imported first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
