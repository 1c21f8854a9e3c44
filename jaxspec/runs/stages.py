"""Results of finished stages, kept as Orbax checkpoints, so that a killed run repeats only the stage it was in."""

from __future__ import annotations

import copy
import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxspec.files import to_json, write_text

#: A stage's result: nested dictionaries of arrays.
Arrays = dict[str, Any]

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports every save at INFO and WARNING


class Stages:
    """Stages of one run, by name.

    Attributes:
        timing_s: seconds that each stage took when it was computed, over all attempts that it was resumed from; a stage that an
            earlier version stored has none.
    """

    def __init__(self, root: Path):
        self.root = root
        self._folder = ""
        self.timing_s: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._seconds = self._read_seconds()

    def within(self, folder: str) -> Stages:
        """The same store, in which every name given stands below a folder; times are kept together."""
        inner = copy.copy(self)
        inner._folder = f"{self._folder}{folder}/"
        return inner

    def run(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The stored result of the stage, or a new one, stored before it is returned.

        Orbax writes beside the target and renames, so a stage is either there whole or not at all.
        """
        name = self._folder + name
        path = self.root / "stages" / name
        with ocp.PyTreeCheckpointer() as checkpointer:
            if not path.exists():
                # What earlier attempts spent counts too.
                self._began[name] = time.monotonic() - self._seconds.get(name, 0.0)
                result = jax.tree.map(np.asarray, compute())
                self._tick(name)  # before the stage counts as done, so that a done one has its time
                checkpointer.save(path, result)
            # Read back even what was just computed: a resumed run then sees the very same arrays.
            restored = checkpointer.restore(path)
        if name in self._seconds:
            self.timing_s[name] = self._seconds[name]
        return jax.tree.map(np.asarray, restored)

    def tick(self, name: str) -> None:
        """Record the time spent on a stage so far, for stages that save their progress."""
        self._tick(self._folder + name)

    def _tick(self, name: str) -> None:
        self._seconds[name] = round(time.monotonic() - self._began[name], 3)
        write_text(self._seconds_file, to_json(self._seconds))

    @property
    def _seconds_file(self) -> Path:
        return self.root / "seconds.json"

    def _read_seconds(self) -> dict[str, float]:
        try:
            found = json.loads(self._seconds_file.read_text(encoding="utf-8"))
            return {str(name): float(seconds) for name, seconds in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):  # times are a remark: a run does not stop for them
            return {}

    def has(self, name: str) -> bool:
        """Whether the stage is done."""
        return (self.root / "stages" / self._folder / name).exists()

    def manager(self, name: str) -> ocp.CheckpointManager:
        """A checkpoint manager for a stage that saves its progress."""
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        return ocp.CheckpointManager(self.root / "progress" / self._folder / name, options=options)

    def drop_progress(self, name: str) -> None:
        """Remove what a finished stage saved on its way."""
        shutil.rmtree(self.root / "progress" / self._folder / name, ignore_errors=True)
