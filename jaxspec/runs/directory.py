"""A run directory: named by its configuration, resumed by the same command, finished once `result.json` is there."""

from __future__ import annotations

import fcntl
import json
import os
import reprlib
import shutil
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from jaxspec.cleanup import PENDING
from jaxspec.compress.knobs import NORMS_FILE
from jaxspec.errors import InputError, one_line
from jaxspec.output_places import check_folder_place
from jaxspec.partial_files import parse_json, read_json, remove_leftovers, to_json, write_text
from jaxspec.runs.inputs import changed_inputs
from jaxspec.runs.run_index import (
    RECORD,
    check_settings_file,
    find_run,
    headline_numbers,
    new_record,
    read_object,
    write_result_file,
)
from jaxspec.settings.base import Settings, config_hash, read_toml, to_toml

__all__ = ["Lock", "lock_directory"]


class Lock(NamedTuple):
    """A run directory that is held as long as the file is open.

    Attributes:
        excludes: whether other processes are kept out; not where the file system has no locks.
    """

    file: TextIO
    excludes: bool


def lock_directory(path: Path) -> Lock:
    """Lock a directory, which is made if need be.

    Raises:
        InputError: it cannot be written, or another process holds it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Held as long as the run; no link that lies there is followed.
        file = os.fdopen(os.open(path / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w")
    except OSError as error:
        raise InputError(
            f"run directory {str(path)!r} cannot be written ({error.strerror}); give another one with --out"
        ) from error
    try:
        # Freed by the operating system when the process ends, however it ends.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InputError(f"run directory {str(path)!r} is in use by another process; wait for it") from error
    except OSError:  # a file system without locks, as Lustre often is: waiting would not help
        return Lock(file, excludes=False)
    return Lock(file, excludes=True)


#: What a draft would have gained at every token of the measured prompts, of a command that counts it.
ACCEPTANCE_TRACE = "acceptance_trace.jsonl"

#: Folder of those of other targets than the network as it is, by scheme.
ACCEPTANCE_TRACES = "acceptance_traces"

#: Files of every kind of run.
_CONTENTS = (
    "config.toml",
    "inputs.json",
    RECORD,
    "checkpoints",
    "metrics.jsonl",
    "result.json",
    "report.html",
    "figures",
    NORMS_FILE,
    ACCEPTANCE_TRACE,
    ACCEPTANCE_TRACES,
)

#: What Orbax calls a checkpoint until it is whole.
_PARTIAL_CHECKPOINT = "*.orbax-checkpoint-tmp*"


def run_path(command: str, config: Settings, out: str | Path | None = None) -> Path:
    """Place of a run: `out`, or runs/<command>-<hash of the configuration>."""
    return Path(out) if out is not None else Path("runs") / f"{command}-{config_hash(config)}"


def kept_files(command: str, config: Settings, out: str | Path | None = None) -> list[Path]:
    """Files and folders that every run keeps in its place, be they there or not yet."""
    return [run_path(command, config, out) / name for name in _CONTENTS]


def differing_settings(path: Path, config: Settings) -> list[str]:
    """Names of settings that differ between a run's config.toml and a configuration."""
    theirs, ours = read_toml(path), tomllib.loads(to_toml(config))
    ordered = lambda value: json.dumps(value, default=str)  # that of a sweep's axes is the order of its points
    return sorted(k for k in {*theirs, *ours} if ordered(theirs.get(k)) != ordered(ours.get(k)))


class RunDirectory:
    """One run's files.

    Attributes:
        inputs: digests of the files that the configuration names.
        owned: whether this process writes them.
        check_inputs: raises InputError where one of those files is another one by now.
        keeps: whether the run keeps parts of its work, so that a later process goes on with them.

    Raises:
        InputError: the directory belongs to another configuration or other inputs, is in use, or cannot be written.
    """

    def __init__(
        self,
        command: str,
        config: Settings,
        *,
        inputs: dict[str, str] | None = None,
        out: str | Path | None = None,
        force: bool = False,
        begin: bool = True,
        contents: Collection[str] = (),
        owned: bool = True,
    ):
        """Open or create.

        Args:
            inputs: digests of the files that the configuration names, so that a resumed run cannot mix two of them; None:
                `compare` will tell them, before `begin`.
            out: directory to use; otherwise runs/<command>-<hash of the configuration>.
            force: start anew.
            begin: now; otherwise everything about the directory is checked, but nothing is written or removed until
                `begin` is called.
            contents: further files that the run writes; `force` removes these and those of every run, nothing else.
            owned: False where another process has the directory: here nothing of it is read, checked or written.
        """
        self.keeps = True
        self.path = run_path(command, config, out)
        self._command, self._config, self._force = command, config, force
        self.inputs: dict[str, str] = {}
        self.check_inputs: Callable[[], object] = lambda: None
        self._contents = (*_CONTENTS, *contents)
        self._lock: Lock | None = None
        self.owned = owned
        if not owned:
            return
        check_folder_place(self.path, "run directory")
        try:
            if (self.path / ".lock").is_file():
                self._hold()
            self._check_settings()
            if inputs is not None:
                self.compare(inputs)
            if begin:
                self.begin()
        except BaseException:
            self.close()
            raise

    def compare(self, inputs: dict[str, str]) -> None:
        """Take the digests of the files that the configuration names, and compare them with those recorded.

        Raises:
            InputError: a file has changed since the run was begun.
        """
        self.inputs = inputs
        if self.owned:
            self._check_inputs()

    def begin(self) -> None:
        """Claim the directory for this run; what a killed run left half-written in it is removed.

        Raises:
            InputError: it cannot be written.
        """
        if not self.owned:
            return
        self._hold()
        if self._force:
            self._clear()
            self._force = False
        else:
            self._check_settings()
            self._check_inputs()
        self._remove_unfinished()
        write_text(self.path / "config.toml", to_toml(self._config))
        if not (self.path / "inputs.json").exists():  # a digest taken now would say nothing of what was read then
            write_text(self.path / "inputs.json", to_json(self.inputs))
        self._record_attempt()
        PENDING.begin(self, self._remove_unfinished)
        PENDING.run(self._state_line)

    def _record_attempt(self) -> None:
        """Add what this attempt is made with to those before it."""
        record, file = new_record(self._command, self._config), self.path / RECORD
        earlier = find_run(self.path).attempts if file.exists() else []
        write_text(file, to_json(record | {"attempts": [*earlier, *record["attempts"]]}))

    def _state_line(self) -> str:
        """One line about this run, at any moment."""
        if (self.path / "result.json").exists():
            return f"run directory {self.path} is finished, and the same command prints its result"
        if not self.keeps:
            return f"run directory {self.path} has no result yet, and the same command starts it anew"
        return f"run directory {self.path} keeps what is done, and the same command resumes it"

    def _hold(self) -> None:
        """Lock the directory, which is made if need be."""
        if self._lock is None:
            self._lock = lock_directory(self.path)

    @property
    def shared(self) -> bool:
        """Whether nothing keeps other processes out of the directory that is held: its file system has no locks."""
        return self._lock is not None and not self._lock.excludes

    def __repr__(self) -> str:
        return repr(find_run(self.path)) if is_run_directory(self.path) else f"<run {self.path}: not begun>"

    def _repr_html_(self) -> str | None:
        return find_run(self.path)._repr_html_() if is_run_directory(self.path) else None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the directory for another process; its files stay."""
        PENDING.end(self)
        if self._lock is not None:
            self._lock.file.close()

    def _clear(self) -> None:
        for name in self._contents:
            _remove(self.path / name)

    def _remove_unfinished(self) -> None:
        """Files and checkpoints that no process works on, since the lock of the directory is held."""
        for folder in (self.path, self.path / "figures"):
            remove_leftovers(folder)
        for _ in range(3):  # another thread of an interrupted process may still be writing
            partial = list(self.checkpoints.rglob(_PARTIAL_CHECKPOINT))
            for folder in partial:
                shutil.rmtree(folder, ignore_errors=True)
            if not partial:
                break

    def _check_settings(self) -> None:
        """Whether what is there belongs to this configuration; nothing does that is about to be started anew."""
        settings = self.path / "config.toml"
        if self._force:
            return
        if settings.exists():
            if differing := differing_settings(settings, self._config):
                raise InputError(
                    f"run directory {str(self.path)!r} belongs to another configuration (differs in "
                    f"{', '.join(differing)}); give another --out, or --force to start it anew"
                )
            find_run(self.path)  # what is recorded of it can be read
            check_settings_file(self.path)
        elif foreign := [name for name in self._contents if (self.path / name).exists()]:
            raise InputError(
                f"directory {str(self.path)!r} holds {', '.join(foreign)} but no config.toml; give another --out"
            )

    def _check_inputs(self) -> None:
        """Whether the inputs are those that the run was begun with."""
        inputs_file = self.path / "inputs.json"
        if self._force or not inputs_file.exists():
            return
        if changed := changed_inputs(read_object(inputs_file), self.inputs):
            problem = f"{', '.join(changed)} has changed since run directory {str(self.path)!r} was begun"
            raise InputError(f"{problem}; give another --out, or --force to start it anew")

    @property
    def checkpoints(self) -> Path:
        """Absolute folder of all checkpoints."""
        return (self.path / "checkpoints").absolute()

    def finished(self) -> Any:
        """The parsed result of a finished run, else None; None too if it is about to be started anew."""
        path = self.path / "result.json"
        if not self.owned or not path.exists() or self._force:
            return None
        try:
            result = read_json(path)
            if not result or not all(
                isinstance(one, dict) for one in (result if isinstance(result, list) else [result])
            ):
                raise ValueError("it holds no results")
            return result
        except (OSError, ValueError) as error:
            problem = f"{str(path)!r} is damaged ({one_line(error)})"
            raise InputError(f"{problem}; give another --out, or --force to start it anew") from error

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl, one object per line."""
        if not self.owned:
            return
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))

    def write_result(self, result: Any, headline: Collection[str] = ()) -> None:
        """Write result.json; from then on the run counts as finished.

        Args:
            headline: paths of the result's main numbers, which run.json keeps; see `headline_numbers`.
        """
        if self.owned:
            write_result_file(self.path, result, {"headline": headline_numbers(result, headline)})


def _remove(target: Path) -> None:
    """Remove a file or a folder; of a folder that lies elsewhere, behind a link, what is in it."""
    for one in list(target.iterdir()) if target.is_symlink() and target.is_dir() else [target]:
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink(missing_ok=True)


def is_run_directory(path: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (path / "config.toml").is_file()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Lines of the metrics.jsonl in a run directory; none where there is no such file.

    Raises:
        InputError: it cannot be read.
    """
    file = path / "metrics.jsonl"
    try:
        metrics = [parse_json(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        if odd := [line for line in metrics if not isinstance(line, dict)]:
            raise ValueError(f"a line is {reprlib.repr(odd[0])}, not an object")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{str(file)!r} is damaged ({one_line(error)}); remove it, and only the figure of the steps is lost"
        ) from error
    return metrics
