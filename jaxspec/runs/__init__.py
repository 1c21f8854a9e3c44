"""Runs: what the commands do, as functions: `tune(TuneConfig(...))`, `evaluate`, `predict`; run directories that resume."""

from jaxspec.runs.config import EvaluateConfig, TreeConfig, TuneConfig, build_config, read_toml
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.evaluation import evaluate
from jaxspec.runs.inspection import inspect_file
from jaxspec.runs.packing import PackConfig, pack_checkpoint, unpack_container
from jaxspec.runs.prediction import predict
from jaxspec.runs.progress import Reporter
from jaxspec.runs.sweep import read_sweep, sweep
from jaxspec.runs.sweep_config import SweepConfig, read_sweep_config
from jaxspec.runs.tree_search import search_tree
from jaxspec.runs.tuning import tune
from jaxspec.settings import PredictConfig

__all__ = [
    "EvaluateConfig",
    "PackConfig",
    "PredictConfig",
    "Reporter",
    "RunDirectory",
    "SweepConfig",
    "TreeConfig",
    "TuneConfig",
    "build_config",
    "evaluate",
    "inspect_file",
    "pack_checkpoint",
    "predict",
    "read_sweep",
    "read_sweep_config",
    "read_toml",
    "search_tree",
    "sweep",
    "tune",
    "unpack_container",
]
