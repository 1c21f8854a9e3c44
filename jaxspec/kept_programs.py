"""Compiled programs of the command line, kept between processes by JAX's own cache in the user's folder of caches."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

__all__ = ["keep_programs", "programs_folder"]

#: Programs used least recently go first beyond this size, 256 MiB.
_MOST_BYTES = 1 << 28


def programs_folder() -> Path:
    """Where programs for processors like this one are kept: `jaxspec/programs-...` in XDG_CACHE_HOME, or in ~/.cache.

    A home may be shared by machines whose processors lack one another's instructions.
    """
    about = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        about += next((line for line in file if line.startswith(("flags", "Features"))), "")
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(given) if os.path.isabs(given) else Path("~/.cache").expanduser()
    return folder / "jaxspec" / f"programs-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


def keep_programs() -> None:
    """Let JAX keep what it compiles from now on, and XLA keep its warnings to itself.

    Nothing changes after JAX was imported, for what JAX's own variables already say, and where the folder cannot be
    written. JAX writes each program whole or not at all, under a lock: processes may share the folder.
    """
    if "jax" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = programs_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home either
        return
    if os.access(folder, os.W_OK | os.X_OK):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(_MOST_BYTES))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
