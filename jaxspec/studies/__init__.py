"""What users ask for, a package each: `tune(TuneConfig(...))`, `evaluate`, `search_tree`, `predict`, `sweep`, ..."""

from jaxspec.runs.config import EvaluateConfig, TreeConfig, TuneConfig
from jaxspec.settings import PackConfig, PredictConfig
from jaxspec.studies.evaluate.run import evaluate
from jaxspec.studies.pack.inspection import inspect_file
from jaxspec.studies.pack.run import pack_checkpoint, unpack_container
from jaxspec.studies.predict.run import predict
from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config
from jaxspec.studies.sweep.run import read_sweep, sweep
from jaxspec.studies.tree.run import search_tree
from jaxspec.studies.tune.run import tune

__all__ = [
    "EvaluateConfig",
    "PackConfig",
    "PredictConfig",
    "SweepConfig",
    "TreeConfig",
    "TuneConfig",
    "evaluate",
    "inspect_file",
    "pack_checkpoint",
    "predict",
    "read_sweep",
    "read_sweep_config",
    "search_tree",
    "sweep",
    "tune",
    "unpack_container",
]
