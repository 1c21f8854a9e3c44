"""Runs: directories that resume and are listed, stages, progress, digests of inputs."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.runs.directory import RunDirectory
    from jaxspec.runs.execute import execute_run
    from jaxspec.runs.progress import Reporter
    from jaxspec.runs.run_index import KeptRun, compare_runs, find_run, list_runs, runs_table

__all__ = ["KeptRun", "Reporter", "RunDirectory", "compare_runs", "execute_run", "find_run", "list_runs", "runs_table"]

lazy_names(__name__)
