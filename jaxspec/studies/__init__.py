"""What users ask for, a package each: `tune(TuneConfig(...))`, `evaluate`, `search_tree`, `predict`, `sweep`, ...

Of each study its settings, its result and the function between them. Names are imported when they are first used, so that
settings do not load JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.host.config import CalibrateConfig
    from jaxspec.host.result import CalibrateResult
    from jaxspec.host.run import calibrate
    from jaxspec.studies.advise.config import AdviseConfig
    from jaxspec.studies.advise.result import AdviseResult
    from jaxspec.studies.advise.run import advise
    from jaxspec.studies.codesign.config import CodesignConfig
    from jaxspec.studies.codesign.result import CodesignResult
    from jaxspec.studies.codesign.run import codesign
    from jaxspec.studies.compare.config import CompareConfig
    from jaxspec.studies.compare.result import CompareResult
    from jaxspec.studies.compare.run import compare
    from jaxspec.studies.evaluate.config import EvaluateConfig
    from jaxspec.studies.evaluate.result import EvaluateResult
    from jaxspec.studies.evaluate.run import evaluate
    from jaxspec.studies.export.config import ExportConfig
    from jaxspec.studies.export.result import ExportResult
    from jaxspec.studies.export.run import export_draft
    from jaxspec.studies.pack.config import PackConfig
    from jaxspec.studies.pack.result import PackResult, UnpackResult
    from jaxspec.studies.pack.run import inspect_file, pack_checkpoint, unpack_container
    from jaxspec.studies.predict.config import PredictConfig
    from jaxspec.studies.predict.result import PredictResult
    from jaxspec.studies.predict.run import predict
    from jaxspec.studies.scale.config import ScaleConfig
    from jaxspec.studies.scale.result import ScaleResult
    from jaxspec.studies.scale.run import scale
    from jaxspec.studies.serve.config import ServeConfig
    from jaxspec.studies.serve.result import ServeResult
    from jaxspec.studies.serve.run import serve
    from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config
    from jaxspec.studies.sweep.points_file import read_sweep
    from jaxspec.studies.sweep.result import SweepResult
    from jaxspec.studies.sweep.run import merge_sweeps, sweep
    from jaxspec.studies.tree.config import TreeConfig
    from jaxspec.studies.tree.result import TreeResult
    from jaxspec.studies.tree.run import search_tree
    from jaxspec.studies.tune.config import TuneConfig
    from jaxspec.studies.tune.result import TuneResult
    from jaxspec.studies.tune.run import tune

__all__ = [
    "AdviseConfig",
    "AdviseResult",
    "CalibrateConfig",
    "CalibrateResult",
    "CodesignConfig",
    "CodesignResult",
    "CompareConfig",
    "CompareResult",
    "EvaluateConfig",
    "EvaluateResult",
    "ExportConfig",
    "ExportResult",
    "PackConfig",
    "PackResult",
    "PredictConfig",
    "PredictResult",
    "ScaleConfig",
    "ScaleResult",
    "ServeConfig",
    "ServeResult",
    "SweepConfig",
    "SweepResult",
    "TreeConfig",
    "TreeResult",
    "TuneConfig",
    "TuneResult",
    "UnpackResult",
    "advise",
    "calibrate",
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

lazy_names(__name__)
