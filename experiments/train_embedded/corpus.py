"""The training text: Python's own standard library, less a fixed list of modules that nothing is ever trained on."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import jax
import numpy as np

#: Modules that the embedded network never sees, nor their tests: the held-out text. Changing this list voids the weights.
HELD_OUT = (
    "bisect",
    "calendar",
    "cmd",
    "configparser",
    "csv",
    "fractions",
    "getopt",
    "graphlib",
    "gzip",
    "heapq",
    "netrc",
    "queue",
    "sched",
    "shelve",
    "shlex",
    "textwrap",
    "uuid",
)

#: Generated tables (character maps) and foreign packages: no text to learn from.
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "encodings", "__pycache__", "ensurepip"}
_TEST_FOLDERS = {"test", "tests", "idle_test"}

#: Stands between two files, so that the network can tell where one begins.
SEPARATOR = b"\x00"

#: Share of the training windows that come from library code; the rest comes from its tests, where they are installed.
LIBRARY_SHARE = 0.7


def standard_library() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def is_held_out(path: Path) -> bool:
    """Whether any part of the path names a held-out module or its tests, in whatever package it lies."""
    names = {part.removesuffix(".py").removeprefix("test_") for part in path.parts}
    return not names.isdisjoint(HELD_OUT)


def _join(paths: list[Path], root: Path) -> np.ndarray:
    return np.frombuffer(SEPARATOR + SEPARATOR.join((root / p).read_bytes() for p in paths), np.uint8)


def training_bytes(root: Path | None = None) -> dict[str, np.ndarray]:
    """All training text by origin, each file preceded by the separator.

    Returns:
        {"library": uint8 array, "tests": uint8 array}; "tests" is missing where the interpreter ships none.
    """
    root = root or standard_library()
    files = sorted(p.relative_to(root) for p in root.rglob("*.py"))
    files = [p for p in files if not is_held_out(p) and _SKIPPED_FOLDERS.isdisjoint(p.parts)]
    tests = [p for p in files if not _TEST_FOLDERS.isdisjoint(p.parts)]
    library = [p for p in files if _TEST_FOLDERS.isdisjoint(p.parts)]
    if not library:
        raise FileNotFoundError(f"no Python source below {root}; point --stdlib at a folder of .py files")
    corpus = {"library": _join(library, root)}
    if tests:
        corpus["tests"] = _join(tests, root)
    return corpus


def held_out_bytes(root: Path | None = None) -> np.ndarray:
    """The held-out modules, each preceded by the separator."""
    root = root or standard_library()
    return _join([Path(f"{name}.py") for name in HELD_OUT], root)


def sample_windows(corpus: dict[str, np.ndarray], seed: int, step: int, batch: int, length: int) -> np.ndarray:
    """Windows of one step, a function of (seed, step) alone, so that a resumed run sees what an unbroken one would.

    Returns:
        int32 "batch length".
    """
    seeds = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), step))
    rng = np.random.default_rng(np.asarray(seeds))
    parts = ["library" if "tests" not in corpus or rng.random() < LIBRARY_SHARE else "tests" for _ in range(batch)]
    starts = [int(rng.integers(corpus[part].size - length)) for part in parts]
    rows = [corpus[part][start : start + length] for part, start in zip(parts, starts, strict=True)]
    return np.stack(rows).astype(np.int32)
