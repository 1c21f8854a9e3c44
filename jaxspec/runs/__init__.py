"""Runs: directories that resume, stages, progress, digests of inputs."""

from jaxspec.runs.config import build_config, read_toml
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter

__all__ = ["Reporter", "RunDirectory", "build_config", "read_toml"]
