"""What a run was made with: versions, commit, devices."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

__all__ = ["attempt", "source_commit", "versions"]

#: A run does not wait longer for git.
_GIT_S = 5.0


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = ("jaxspec", "jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@functools.cache
def source_commit() -> str | None:
    """Commit of the sources that run, with "-dirty" where they differ from it; None where they are no checkout."""
    here = Path(__file__)
    if _git("ls-files", "--error-unmatch", here.name) is None:  # in a repository of others, or in none
        return None
    commit = _git("describe", "--always", "--abbrev=12", "--exclude=*")
    # `describe --dirty` rewrites the index, whose lock stays where git is stopped in that, and is in the way of other commands.
    changed = _git("status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return None
    return f"{commit}-dirty" if changed else commit


def attempt() -> dict[str, Any]:
    """What one attempt at a run is made with, in JSON's own types."""
    kinds = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    devices = [{"kind": kind, "count": kinds.count(kind)} for kind in dict.fromkeys(kinds)]
    return {"versions": versions(), "commit": source_commit(), "devices": devices, "system": platform.platform()}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
