"""A run directory: named by its configuration, resumed by the same command, finished once `result.json` is there."""

from __future__ import annotations

import fcntl
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.runs.config import CommonConfig, config_hash, read_toml, to_toml
from jaxspec.runs.inputs import changed_inputs, unrecorded_inputs
from jaxspec.runs.sweep_config import SweepConfig

#: Everything a run ever writes; `--force` removes these and nothing else.
_CONTENTS = (
    *("config.toml", "inputs.json", "checkpoints", "metrics.jsonl", "result.json", "report.html", "figures"),
    "sweep.parquet",
)


class RunDirectory:
    """One run's files.

    Attributes:
        unrecorded: files that the configuration names and an earlier version began the run without a digest of.

    Raises:
        InputError: the directory belongs to another configuration or other inputs, is in use, or cannot be written.
    """

    def __init__(
        self,
        command: str,
        config: CommonConfig | SweepConfig,
        *,
        inputs: dict[str, str],
        out: str | Path | None = None,
        force: bool = False,
    ):
        """Open or create.

        Args:
            inputs: digests of the files that the configuration names, so that a resumed run cannot mix two of them.
            out: directory to use; otherwise runs/<command>-<hash of the configuration>.
            force: start anew.
        """
        self.unrecorded: list[str] = []
        self.path = Path(out) if out is not None else Path("runs") / f"{command}-{config_hash(config)}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")  # held as long as the run
        except OSError as error:
            raise InputError(
                f"run directory {str(self.path)!r} cannot be written ({error.strerror}); give another one with --out"
            ) from error
        try:
            # Freed by the operating system when the process ends, however it ends.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise InputError(f"run directory {str(self.path)!r} is in use by another process; wait for it") from error
        try:
            if force:
                self._clear()
            self._claim(config, inputs)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the directory for another process; its files stay."""
        self._lock.close()

    def _clear(self) -> None:
        for name in _CONTENTS:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def _claim(self, config: CommonConfig | SweepConfig, inputs: dict[str, str]) -> None:
        settings, inputs_file = self.path / "config.toml", self.path / "inputs.json"
        if settings.exists():
            theirs, ours = read_toml(settings), tomllib.loads(to_toml(config))
            differing = sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key))
            if differing:
                raise InputError(
                    f"run directory {str(self.path)!r} belongs to another configuration (differs in "
                    f"{', '.join(differing)}); give another --out, or --force to start it anew"
                )
        elif foreign := [name for name in _CONTENTS if (self.path / name).exists()]:
            raise InputError(
                f"directory {str(self.path)!r} holds {', '.join(foreign)} but no config.toml; give another --out"
            )
        write_text(settings, to_toml(config))
        if inputs_file.exists():
            recorded = self._json(inputs_file)
            if changed := changed_inputs(recorded, inputs):
                raise InputError(
                    f"{', '.join(changed)} has changed since run directory {str(self.path)!r} was begun; "
                    "give another --out, or --force to start it anew"
                )
            self.unrecorded = unrecorded_inputs(recorded, inputs)
        else:
            write_text(inputs_file, to_json(inputs))

    @property
    def checkpoints(self) -> Path:
        """Absolute folder of all checkpoints."""
        return (self.path / "checkpoints").absolute()

    def finished(self) -> Any:
        """The parsed result of a finished run, else None."""
        result = self.path / "result.json"
        return self._json(result) if result.exists() else None

    def _json(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(
                f"{str(path)!r} is damaged ({error}); give another --out, or --force to start it anew"
            ) from error

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        """Replace metrics.jsonl, one object per line."""
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))

    def write_result(self, entries: list[dict[str, Any]]) -> None:
        """Write result.json; from then on the run counts as finished."""
        write_text(self.path / "result.json", to_json(entries))
