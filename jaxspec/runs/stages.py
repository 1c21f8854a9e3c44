"""Results of finished stages, kept as Orbax checkpoints, so that a killed run repeats only the stage it was in."""

from __future__ import annotations

import contextlib
import copy
import errno
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxspec.errors import InputError, one_line
from jaxspec.models.mesh import on_host
from jaxspec.partial_files import read_json, to_json, write_text
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.settings.coercion import shown

__all__ = ["damage_as_input_error", "refusal_as_input_error"]


#: In messages of TensorStore, which raises ValueError for everything; earlier versions have the words alone.
_CODE = re.compile(r"os_error_code='(\d+)'")

#: Of the reads of other arrays, which TensorStore's threads end after the first one has failed, and print with their stacks.
_TOO_LATE = "Event loop is closed"

#: Refusals of a disk that are known by their words.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)

# Orbax reports every save at INFO and WARNING, and at ERROR prints the stack of what it also raises.
logging.getLogger("absl").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def damage_as_input_error(what: str, path: Any) -> Iterator[None]:
    """Within the block, files that Orbax cannot read are bad input, in one line; what comes late of it is not printed.

    Args:
        what: lies in the folder `path`.
    Raises:
        InputError: they are damaged.
    """
    before = sys.unraisablehook
    sys.unraisablehook = lambda late: None if str(late.exc_value) == _TOO_LATE else before(late)
    try:
        yield
        sys.unraisablehook = before
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = one_line(error)
        raise InputError(
            f"{what} {str(path)!r} is damaged ({type(error).__name__}: {shown(reason)}); remove that folder, and the same "
            "command computes it again"
        ) from error


@contextlib.contextmanager
def refusal_as_input_error(path: Any) -> Iterator[None]:
    """Within the block, a disk that refuses what Orbax writes into a folder is the operating system's own error.

    Raises:
        OSError: the disk is full or cannot be written; its file is `path`.
    """
    try:
        yield
    except ValueError as error:
        if (number := _refusal(str(error))) is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _refusal(message: str) -> int | None:
    """The number of the operating system's error that a message tells of; None: of none."""
    if code := _CODE.search(message):
        return int(code[1])
    return next((number for number in _REFUSALS if os.strerror(number) in message), None)


#: A stage's result: nested dictionaries of arrays.
Arrays = dict[str, Any]

#: Process 0 alone, without waiting for others: what it writes is whole and in its memory.
_ONE = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})

#: Between the name of an array that has no element and its type.
_EMPTY = " empty "

#: Where a stored stage has its own name.
_NAME = " stage"


class Stages:
    """Stages of one run, by name.

    Attributes:
        timing_s: seconds that each stage took when it was computed, over all attempts that it was resumed from; a stage that an
            earlier version stored has none.
    """

    def __init__(
        self, root: Path, processes: Processes = ONE_PROCESS, check_inputs: Callable[[], object] = lambda: None
    ):
        """A store, be its folder there or not.

        Args:
            processes: that do all stages together; process 0 alone reads and writes files.
            check_inputs: raises InputError where what is computed may not be kept; see `RunDirectory`.
        """
        self.root, self.processes, self._check_inputs = root, processes, check_inputs
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
        done, name = self.has(name), self._folder + name
        path = self.root / "stages" / name
        if not done:
            self._check_place(path)
            # What earlier attempts spent counts too.
            self._began[name] = time.monotonic() - self._seconds.get(name, 0.0)
            result = jax.tree.map(np.asarray, on_host(compute()))
            self.processes.all_or_raise(self._check_inputs)
            self._tick(name)  # before the stage counts as done, so that a done one has its time
            if self._owns:
                with refusal_as_input_error(path), _checkpointer() as checkpointer:
                    checkpointer.save(path, ocp.args.PyTreeSave(_without_empty(result) | {_NAME: text_array(name)}))
        if name in self._seconds:
            self.timing_s[name] = self._seconds[name]
        return self.processes.broadcast(self._read(name) if self._owns else {})

    def _check_place(self, path: Path) -> None:
        """Before long work: that its result can be stored.

        Raises:
            InputError: a file is in the place of a folder.
        """
        for folder in path.parents if self._owns else ():
            if folder.is_file():
                raise InputError(f"{str(folder)!r} is a file, where the run keeps its stages in a folder; remove it")

    @property
    def _owns(self) -> bool:
        return self.processes.owns

    def _read(self, name: str) -> Arrays:
        """A stage, read back even where it was just computed: a resumed run then sees the very same arrays.

        Raises:
            InputError: its files are damaged, or another stage's.
        """
        path, expected = self.root / "stages" / name, text_array(name)
        with damage_as_input_error("stage", path), _checkpointer() as checkpointer:
            arrays = _with_empty(jax.tree.map(np.asarray, checkpointer.restore(path)))
            # Earlier versions stored no name.
            if not np.array_equal(arrays.pop(_NAME, expected), expected):
                raise ValueError("these are the files of another stage")
            return arrays

    def tick(self, name: str) -> None:
        """Record the time spent on a stage so far, for stages that save their progress."""
        self._tick(self._folder + name)

    def _tick(self, name: str) -> None:
        self._seconds[name] = round(time.monotonic() - self._began[name], 3)
        if self._owns:
            write_text(self._seconds_file, to_json(self._seconds))

    @property
    def _seconds_file(self) -> Path:
        return self.root / "seconds.json"

    def _read_seconds(self) -> dict[str, float]:
        try:
            seconds_by_stage = read_json(self._seconds_file)
            return {str(name): float(seconds) for name, seconds in seconds_by_stage.items()}
        except (OSError, ValueError, AttributeError, TypeError):  # times are a remark: a run does not stop for them
            return {}

    def has(self, name: str) -> bool:
        """Whether the stage is done; all processes ask together."""
        return self.processes.broadcast(self._owns and (self.root / "stages" / self._folder / name).exists())

    @contextlib.contextmanager
    def progress(self, name: str) -> Iterator[Progress]:
        """What a stage saves on its way, open within the block."""
        if not self._owns:
            yield Progress(None, self.processes, self._check_inputs)
            return
        folder = self.root / "progress" / self._folder / name
        self._check_place(folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, enable_async_checkpointing=False, create=False, multiprocessing_options=_ONE
        )
        with ocp.CheckpointManager(folder, options=options) as manager:
            yield Progress(manager, self.processes, self._check_inputs)


class Progress:
    """States of a stage that was stopped, of which the last one counts."""

    def __init__(self, manager: ocp.CheckpointManager | None, processes: Processes, check_inputs: Callable[[], object]):
        """Args: manager: None on all processes but 0; check_inputs: see `Stages`."""
        self._manager, self._processes, self._check_inputs = manager, processes, check_inputs

    def last(self, like: Any) -> Any | None:
        """The last state that was saved, in the host's memory; None: there is none.

        Args:
            like: a state, for its form.
        Raises:
            InputError: its files are damaged.
        """
        return self._processes.broadcast(None if self._manager is None else _last(self._manager, like))

    def save(self, step: int, state: Any) -> None:
        """Save the state after so many steps."""
        kept = jax.tree.map(np.asarray, on_host(state))
        self._processes.all_or_raise(self._check_inputs)
        if self._manager is not None:
            with refusal_as_input_error(self._manager.directory / str(step)):
                self._manager.save(step, args=ocp.args.StandardSave(kept))


def _last(manager: ocp.CheckpointManager, like: Any) -> Any | None:
    step = manager.latest_step()
    if step is None:
        return None
    form = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    with damage_as_input_error("state", manager.directory / str(step)):
        return manager.restore(step, args=ocp.args.StandardRestore(form))


def text_array(text: str) -> np.ndarray:
    """A text as an array of a stage's result."""
    return np.frombuffer(text.encode(), np.uint8)


def array_text(codes: np.ndarray) -> str:
    """The text of such an array."""
    return codes.astype(np.uint8).tobytes().decode()


def _without_empty(arrays: Arrays) -> Arrays:
    """The same with the form of each array that has no element in its place: Orbax stores none."""
    marked: Arrays = {}
    for name, value in arrays.items():
        if isinstance(value, dict):
            marked[name] = _without_empty(value)
        elif isinstance(value, np.ndarray) and value.size == 0:
            marked[f"{name}{_EMPTY}{value.dtype.name}"] = np.array(value.shape, np.int64)
        else:
            marked[name] = value
    return marked


def _with_empty(arrays: Arrays) -> Arrays:
    """Inverse of `_without_empty`."""
    restored: Arrays = {}
    for name, value in arrays.items():
        plain, empty, dtype = name.partition(_EMPTY)
        if isinstance(value, dict):
            restored[name] = _with_empty(value)
        elif empty:
            restored[plain] = np.zeros(value.tolist(), dtype)
        else:
            restored[name] = value
    return restored


def _checkpointer() -> ocp.Checkpointer:
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(multiprocessing_options=_ONE), multiprocessing_options=_ONE)
