"""Runs: directories that resume, stages, progress, digests of inputs."""

from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter

__all__ = ["Reporter", "RunDirectory", "carry_out"]
