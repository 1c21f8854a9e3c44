"""Results of finished stages, kept as Orbax checkpoints, so that a killed run repeats only the stage it was in."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

#: A stage's result: nested dictionaries of arrays.
Arrays = dict[str, Any]

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports every save at INFO and WARNING


class Stages:
    """Stages of one run, by name."""

    def __init__(self, root: Path):
        self.root = root
        self.timing_s: dict[str, float] = {}

    def run(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The stored result of the stage, or a new one, stored before it is returned.

        Orbax writes beside the target and renames, so a stage is either there whole or not at all.
        """
        path = self.root / "stages" / name
        started = time.monotonic()
        with ocp.PyTreeCheckpointer() as checkpointer:
            if not path.exists():
                result = jax.tree.map(np.asarray, compute())
                checkpointer.save(path, result)
            # Read back even what was just computed: a resumed run then sees the very same arrays.
            restored = checkpointer.restore(path)
        self.timing_s[name] = round(time.monotonic() - started, 3)
        return jax.tree.map(np.asarray, restored)

    def has(self, name: str) -> bool:
        """Whether the stage is done."""
        return (self.root / "stages" / name).exists()

    def manager(self, name: str) -> ocp.CheckpointManager:
        """A checkpoint manager for a stage that saves its progress."""
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        return ocp.CheckpointManager(self.root / "progress" / name, options=options)

    def drop_progress(self, name: str) -> None:
        """Remove what a finished stage saved on its way."""
        shutil.rmtree(self.root / "progress" / name, ignore_errors=True)
