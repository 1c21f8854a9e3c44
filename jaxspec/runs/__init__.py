"""Runs: directories that resume and are listed, stages, progress, digests of inputs."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.runs.carrying_out import carry_out
    from jaxspec.runs.directory import RunDirectory
    from jaxspec.runs.kept import KeptRun, compare_runs, find_run, list_runs, runs_table
    from jaxspec.runs.progress import Reporter

__all__ = [
    "KeptRun",
    "Reporter",
    "RunDirectory",
    "carry_out",
    "compare_runs",
    "find_run",
    "list_runs",
    "runs_table",
]

lazy_names(__name__)
