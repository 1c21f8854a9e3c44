"""Run directories that are kept: which command made each, with which settings, versions, commit and devices, how far it is, and
its headline numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import plain, read_json, to_json, write_text
from jaxspec.report.terminal import Table
from jaxspec.results.records import finite, significant
from jaxspec.settings.base import Settings, read_toml, settings_digest, to_toml
from jaxspec.settings.coercion import as_path, shown

__all__ = [
    "RECORD",
    "KeptRun",
    "attempt",
    "check_result_file",
    "check_settings_file",
    "compare_runs",
    "find_run",
    "headline_numbers",
    "list_runs",
    "new_record",
    "read_object",
    "runs_table",
    "source_commit",
    "versions",
    "write_result_file",
]

# What run.json records of the files of a run directory, so that a changed one is not taken for what the run wrote.

#: File of a run directory with its command and what each attempt at it was made with.
RECORD = "run.json"

#: File with the result of a run; a run is finished once it is there.
_RESULT = "result.json"


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where the file is not there.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        document = read_json(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} is damaged ({one_line(error)}); start the run anew with --force") from error
    if not isinstance(document, dict):
        raise InputError(f"{str(path)!r} is damaged (it holds no object); start the run anew with --force")
    return document


def write_result_file(folder: Path, result: Any, more: Mapping[str, Any] | None = None) -> None:
    """Write result.json, and before it the digest that run.json keeps of it, if there is a run.json.

    Args:
        more: entries that run.json gets too.
    """
    text, file = to_json(result), folder / RECORD
    if file.exists():
        write_text(
            file, to_json({**read_object(file), **(more or {}), "result_sha256": settings_digest(text.encode())})
        )
    write_text(folder / _RESULT, text)


def check_result_file(path: Path, record: Mapping[str, Any]) -> None:
    """Check that the result.json of a finished run is as the run wrote it; earlier versions did not record that.

    Args:
        path: run directory. record: its run.json.
    Raises:
        InputError: it was changed, or is cut.
    """
    result, recorded = path / _RESULT, record.get("result_sha256")
    if recorded is not None and result.is_file() and settings_digest(result.read_bytes()) != recorded:
        raise InputError(
            f"{str(result)!r} is damaged (it is not as the run wrote it); restore it, or start the run anew with --force"
        )


def check_settings_file(path: Path) -> None:
    """Check that a run directory's config.toml is as the run wrote it; earlier versions did not record that.

    Raises:
        InputError: it was changed, so that what is there was made with other settings.
    """
    settings, recorded = path / "config.toml", read_object(path / RECORD).get("config_sha256")
    if recorded is not None and settings_digest(settings.read_bytes()) != recorded:
        raise InputError(
            f"{str(settings)!r} has changed since the run was begun, whose results are of other settings; restore it, or copy "
            "it elsewhere and begin a new run with --config"
        )


#: A table shows so many headline numbers of a run.
_SHOWN = 4


def new_record(command: str, config: Settings) -> dict[str, Any]:
    """What run.json holds of a run that begins now."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "schema_version": 1,
        "command": command,
        "seed": getattr(config, "seed", None),
        "config_sha256": settings_digest(to_toml(config).encode()),
        "attempts": [{"began": began, **attempt()}],
        "headline": [],
    }


def headline_numbers(result: Any, paths: Collection[str]) -> list[dict[str, Any]]:
    """Numbers of a result, by device.

    Args:
        result: in JSON's own types, one entry or a list.
        paths: dotted names, as in "configurations.tuned.speedup_vs_bf16_ar"; those that are absent are left out.
    """
    entries = result if isinstance(result, list) else [result]
    rows = []
    for entry in entries:
        numbers = {path: value for path in paths if (value := _at(entry, path)) is not None}
        device = entry.get("device") if isinstance(entry, Mapping) else None
        rows.append(({} if device is None else {"device": device}) | numbers)
    return rows


def _at(entry: Any, path: str) -> Any:
    for name in path.split("."):
        entry = entry.get(name) if isinstance(entry, Mapping) else None
    return plain(entry)


@dataclasses.dataclass(frozen=True, repr=False)
class KeptRun:
    """One run directory, read without its result.

    Attributes:
        command: that made it; None where an earlier version did not record it.
        state: "finished", "running", "unfinished" or "damaged".
        config: its settings, as in config.toml.
        inputs: SHA-256 of every file that the settings name.
        attempts: versions, commit, devices and time of each attempt, the last one last.
        headline: its main numbers, an entry per device, once it is finished.
        damage: of a damaged one, what is wrong and what to do; nothing else is known of it.
    """

    path: Path
    command: str | None
    state: str
    config: dict[str, Any]
    inputs: dict[str, str]
    seed: int | None
    attempts: list[dict[str, Any]]
    headline: list[dict[str, Any]]
    damage: str | None = None

    @property
    def finished(self) -> bool:
        """Whether its result is there."""
        return self.state == "finished"

    def plain(self) -> dict[str, Any]:
        """All of it in JSON's own types."""
        return plain(vars(self) | {"schema_version": 1, "path": str(self.path)})

    def facts(self) -> dict[str, str]:
        """What there is to know of it, in words."""
        last = self.attempts[-1] if self.attempts else {}
        versions = last.get("versions", {})
        facts = {
            "command": self.command or "unknown",
            "state": self.state,
            "began": str(self.attempts[0].get("began", "unknown")) if self.attempts else "unknown",
            "attempts": str(len(self.attempts) or "unknown"),
            "commit": str(last.get("commit") or "none"),
            "devices": ", ".join(f"{device['count']} x {device['kind']}" for device in last.get("devices", []))
            or "unknown",
            "seed": "none" if self.seed is None else str(self.seed),
        }
        facts |= {f"version {name}": str(number) for name, number in versions.items()}
        facts |= {f"setting {name}": _word(value) for name, value in self.config.items()}
        facts |= {f"input {name}": digest[:12] for name, digest in self.inputs.items()}
        return facts | self._numbers()

    def _numbers(self) -> dict[str, str]:
        several = len(self.headline) > 1
        return {
            f"{name} ({row.get('device')})" if several else name: _word(value)
            for row in self.headline
            for name, value in row.items()
            if name != "device"
        }

    def table(self) -> Table:
        """All that is known of it, a row per fact."""
        return _facts_table(str(self.path), [self])

    def __repr__(self) -> str:
        return f"<run {self.path}: {self.command or 'unknown command'}, {self.state}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def find_run(path: str | os.PathLike[str]) -> KeptRun:
    """One run directory.

    Raises:
        InputError: no run directory, or a damaged file in it.
    """
    path = Path(path)
    if not os.path.isfile(path / "config.toml"):  # not `Path.is_file`, which raises on long names
        raise InputError(f"run {str(path)!r} is no run directory (it has no config.toml); see jaxspec runs list")
    record, config, inputs = (
        read_object(path / RECORD),
        read_toml(path / "config.toml"),
        read_object(path / "inputs.json"),
    )
    for name, document, holds in (
        (RECORD, record, _is_record(record)),
        ("inputs.json", inputs, all(isinstance(digest, str) for digest in inputs.values())),
    ):
        if not holds:
            raise InputError(
                f"{str(path / name)!r} is damaged (it holds {shown(document)}); start the run anew with --force"
            )
    check_result_file(path, record)
    return KeptRun(
        path=path,
        command=record.get("command"),
        state="finished" if (path / "result.json").is_file() else "running" if _in_use(path) else "unfinished",
        config=config,
        inputs=inputs,
        seed=record.get("seed", config.get("seed")),
        attempts=record.get("attempts", []),
        headline=record.get("headline", []),
    )


def list_runs(folder: str | os.PathLike[str] = "runs") -> list[KeptRun]:
    """The run directories in a folder, by name; a damaged one does not hide the others.

    Raises:
        InputError: no such folder, or one that cannot be read.
    """
    folder = Path(as_path("folder", folder))
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"folder {str(folder)!r} cannot be read ({error.strerror}); give one with runs") from error
    return [_run_or_damaged(path) for path in entries if os.path.isfile(path / "config.toml")]


def _run_or_damaged(path: Path) -> KeptRun:
    try:
        return find_run(path)
    except InputError as error:
        return KeptRun(path, None, "damaged", {}, {}, None, [], [], damage=str(error))


def runs_table(runs: Sequence[KeptRun], title: str = "Runs") -> Table:
    """One row per run."""
    table = Table(title, f"{len(runs)} runs, {sum(run.finished for run in runs)} finished")
    for heading in ("run", "command", "state", "began", "commit", "seed", "headline"):
        table.add_column(heading)
    for run in runs:
        facts = run.facts()
        numbers = [f"{name.rpartition('.')[2]} {value}" for name, value in run._numbers().items()]
        words = run.damage or ", ".join(numbers[:_SHOWN]) + (", …" if len(numbers) > _SHOWN else "")
        table.add_row(run.path.name, *(facts[name] for name in ("command", "state", "began", "commit", "seed")), words)
    return table


def compare_runs(paths: Iterable[str | os.PathLike[str]]) -> Table:
    """What differs between runs: settings, inputs, versions, numbers; a column per run.

    Raises:
        InputError: fewer than two runs, a path that is none, or a run whose settings were changed since.
    """
    if isinstance(paths, str) or not isinstance(paths, Iterable):  # a text would be taken apart, letter by letter
        raise InputError(f"paths is {shown(paths)}; give two or more in a list")
    runs = [find_run(as_path("path", path)) for path in paths]
    if len(runs) < 2:
        raise InputError(f"{len(runs)} run came; give two or more to compare")
    for run in runs:
        check_settings_file(run.path)
    return _facts_table("Runs compared", runs, only_different=True)


def _facts_table(title: str, runs: Sequence[KeptRun], *, only_different: bool = False) -> Table:
    facts = [run.facts() for run in runs]
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = {name: [one.get(name, "") for one in facts] for name in names}
    kept = {name: cells for name, cells in rows.items() if not only_different or len(set(cells)) > 1}
    equal = len(rows) - len(kept)
    table = Table(title, f"{equal} more are equal" if only_different else "")
    table.add_column("")
    for run in runs:
        table.add_column(run.path.name)
    for name, cells in kept.items():
        table.add_row(name, *cells)
    return table


def _word(value: Any) -> str:
    number = None if isinstance(value, (bool, int, str)) else finite(value)
    if number is not None:
        return significant(number, 5)
    return ",".join(map(_word, value)) if isinstance(value, (list, tuple)) else str(value)


def _is_record(record: dict[str, Any]) -> bool:
    """Whether what a run.json holds has the form of `new_record`, as far as it is there."""

    def are_tables(values: Any) -> bool:
        return isinstance(values, list) and all(isinstance(value, dict) for value in values)

    attempts = record.get("attempts", [])
    return (
        isinstance(record.get("command"), str | None)
        and are_tables(attempts)
        and all(isinstance(one.get("versions", {}), dict) for one in attempts)
        and all(are_tables(devices := one.get("devices", [])) and _are_named(devices) for one in attempts)
        and are_tables(record.get("headline", []))
    )


def _are_named(devices: list[dict[str, Any]]) -> bool:
    return all({"count", "kind"} <= set(device) for device in devices)


def _in_use(path: Path) -> bool:
    """Whether a process holds the directory, where the system lists locks; asking for the lock could get in its way."""
    try:
        number = str((path / ".lock").stat().st_ino)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return any(number == field.rpartition(":")[2] for line in lines for field in line.split() if field.count(":") == 2)


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
