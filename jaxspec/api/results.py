"""Results of a study, for a notebook: typed results with the tables and figures of the command and its report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.errors import InputError, hint, one_line, question
from jaxspec.html import lines_html
from jaxspec.output_places import check_file_place, check_folder_place
from jaxspec.partial_files import plain, sync_folder, to_json, write_text
from jaxspec.registries import load_object
from jaxspec.report.terminal import Shown, Table
from jaxspec.runs.directory import is_run_directory
from jaxspec.runs.inputs import input_digests
from jaxspec.runs.run_index import RECORD, new_record, write_result_file
from jaxspec.settings.base import Settings, to_toml
from jaxspec.settings.catalog_names import known_device
from jaxspec.settings.coercion import as_path, shown
from jaxspec.studies.study import Study

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports] - optional
    from matplotlib.figure import Figure

__all__ = ["StudyResults", "flat_row", "frame_of", "rows_of", "save_results"]


def frame_of(
    results: Sequence[Any], part: str | None, *, points: Callable[[Any], Mapping[str, Any]] | None
) -> pandas.DataFrame:
    """A pandas table of results.

    Args:
        part: see `rows_of`.
        points: from a result to columns, in place of its own numbers.
    Raises:
        InputError: no such part.
        ImportError: pandas is not installed.
    """
    rows = None if points is not None else rows_of(results, part)
    try:
        import pandas  # pyright: ignore[reportMissingImports] - optional
    except ImportError as error:
        raise ImportError(
            "to_frame() needs pandas, which is not installed; pip install pandas, or use to_json()"
        ) from error
    if points is not None:
        return pandas.concat([pandas.DataFrame(dict(points(result))) for result in results], ignore_index=True)
    return pandas.DataFrame(rows)


def rows_of(results: Sequence[Any], part: str | None) -> list[dict[str, Any]]:
    """A row for each result, or for each entry of a part of it; numbers within tables by dotted names, lists left out.

    Raises:
        InputError: no result has such a part.
    """
    raw = [plain(result if isinstance(result, Mapping) else result.plain()) for result in results]
    if part is None:
        return [flat_row(entry) for entry in raw]
    parts = sorted({name for entry in raw for name, value in entry.items() if _has_rows(value)})
    if part not in parts:
        raise InputError(f"part {shown(part)} has no rows in these results{hint(part, parts)}")
    rows = []
    for entry in raw:
        device = {} if entry.get("device") is None else {"device": entry["device"]}
        entries = entry.get(part) or []
        named = entries.items() if isinstance(entries, Mapping) else ((None, row) for row in entries)
        rows += [device | ({} if name is None else {part: name}) | flat_row(row) for name, row in named]
    return rows


def flat_row(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers and texts of nested tables by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, Mapping):
            flat |= flat_row(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            flat[f"{prefix}{name}"] = value
    return flat


def _has_rows(value: Any) -> bool:
    entries = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return bool(entries) and all(isinstance(entry, Mapping) for entry in entries)


#: Of a run directory, what a saved result does not need.
_LEFT_OUT = shutil.ignore_patterns("checkpoints", ".lock", "*.part")


def save_results(
    path: str | os.PathLike[str],
    command: str,
    config: Settings,
    result: Any,
    *,
    inputs: Callable[[], Mapping[str, str]],
    source: Path | None = None,
    force: bool = False,
) -> Path:
    """Write a folder with config.toml, inputs.json, run.json and result.json.

    Args:
        result: in JSON's own types or near them.
        inputs: called where there is no `source`: digests of the files that it was made of, see `input_digests`.
        source: run directory of the result, whose other files are copied; None, or another folder: there are none.
        force: replace a folder that was saved before.
    Returns:
        The folder.
    Raises:
        InputError: it is there already, is the run directory of a command, or cannot be written.
    """
    given = Path(as_path("path", path))
    check_folder_place(given, "path")
    path = Path(os.path.realpath(given))  # a folder behind a link is replaced where it is
    if path == Path.cwd():
        raise InputError(f"path {str(given)!r} is the working directory; give the name of a folder in it")
    taken = path.is_dir() and any(path.iterdir())
    if taken and (path / ".lock").exists():  # hours of work may be in it
        raise InputError(f"path {str(given)!r} is the run directory of a command; give another place")
    if taken and not (force and is_run_directory(path)):
        allowed = "give another place" if force else "give another place, or force=True to replace a saved result"
        raise InputError(f"path {str(given)!r} is there already; {allowed}")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with _one_line_refusal(given):
            if source is not None and is_run_directory(source):
                shutil.copytree(source, part, ignore=_LEFT_OUT)
            else:
                part.mkdir(parents=True)
                write_text(part / "config.toml", to_toml(config))
                write_text(part / "inputs.json", to_json(inputs()))
                write_text(part / RECORD, to_json(new_record(command, config)))
            write_result_file(part, result)
            if path.is_dir():
                shutil.rmtree(path)
            part.rename(path)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return given


@contextlib.contextmanager
def _one_line_refusal(path: Path) -> Iterator[None]:
    """Raises InputError where the operating system refuses to write in the block."""
    try:
        yield
    except OSError as error:
        # A copied folder has a reason for each file.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or one_line(error)
        raise InputError(f"path {str(path)!r} cannot be written ({reason}); give another place") from error


@dataclasses.dataclass(frozen=True, repr=False)
class StudyResults(Sequence):
    """Results of a study: one per device (or batch and context, where those are lists), or one altogether.

    `results[0]` is the part of one result, `results["rtx-4090"]` that of one device. Where there is one result, its fields are
    attributes: `results.speedup_vs_bf16_ar.value`.

    Attributes:
        study, config: command and its settings.
        results: typed records.
        run: its run directory, a `RunDirectory` or `KeptRun`, which takes no part in equality; None where it makes none.
        several: whether the study returns a list, be it of one.
        digest: digests of the files that were read; raises InputError where they cannot be told any more. None: of those that
            are there now.
    """

    study: Study
    config: Settings
    results: tuple[Any, ...]
    run: Any = dataclasses.field(default=None, compare=False)
    several: bool = False
    digest: Callable[[], Mapping[str, str]] | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, study: Study, config: Settings, returned: Any) -> StudyResults:
        """From what the study's function returned."""
        outcome, run = returned if isinstance(returned, tuple) else (returned, None)
        several = isinstance(outcome, list)
        return cls(study, config, tuple(outcome) if several else (outcome,), run, several)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[StudyResults]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, which: Any) -> StudyResults:
        """The part of one result by number, or of one device by name. Raises InputError: no such device."""
        if isinstance(which, str):
            which = which if which in self.devices else known_device(which)
            if which not in self.devices:
                raise InputError(f"device {shown(which)} is none of these results{hint(which, self.devices)}")
            chosen = tuple(result for result in self.results if result.device == which)
        else:
            chosen = self.results[which]
        return dataclasses.replace(self, results=chosen if isinstance(chosen, tuple) else (chosen,))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if len(self.results) != 1:
            raise AttributeError(self._take_one())
        try:
            return getattr(self.results[0], name)
        except AttributeError as error:
            raise AttributeError(f"{error}{question(name, dir(self))}") from None

    def __dir__(self) -> list[str]:
        own = dir(self.results[0]) if len(self.results) == 1 else []
        return sorted({*super().__dir__(), *(name for name in own if not name.startswith("_"))})

    def _take_one(self) -> str:
        one_each = len(self.devices) == len(self.results)
        ways = (
            f"by number or device: {', '.join(map(repr, self.devices))}" if one_each else "by number, or see to_frame()"
        )
        return f"there are {len(self.results)} results; take one first, {ways}"

    @property
    def devices(self) -> list[str]:
        """Devices of the results, each once; empty where results have none."""
        named = [getattr(result, "device", None) for result in self.results]
        return list(dict.fromkeys(str(name) for name in named if name is not None))

    @property
    def directory(self) -> Path | None:
        """Run directory, or the folder that was written; None where there is none."""
        if self.run is not None:
            return self.run.path
        written = getattr(self.results[0], "directory", None) if len(self.results) == 1 else None
        return None if not written else Path(written)

    @functools.cached_property
    def shown(self) -> Shown:
        """What the command line shows of these results."""
        return load_object(self.study.present)(self._returned())

    def _returned(self) -> Any:
        """These results as the study's function returns them."""
        outcome: Any = list(self.results) if self.several else self.results[0]
        return outcome if self.run is None else (outcome, self.run)

    @property
    def tables(self) -> list[Table]:
        """The tables that the command prints."""
        return list(self.shown.tables)

    def table(self, which: int | str = 0) -> Table:
        """One of the tables, by number or by a part of its title. Raises InputError: there is none."""
        titles = [table.title.plain for table in self.tables]
        if isinstance(which, str):
            places = [i for i, title in enumerate(titles) if which.casefold() in title.casefold()]
        else:
            places = [which] if isinstance(which, Integral) and -len(titles) <= which < len(titles) else []
        if not places:
            raise InputError(f"table {shown(which)} is none of these results; there are {'; '.join(titles) or 'none'}")
        return self.tables[places[0]]

    @property
    def figures(self) -> list[str]:
        """Names of the figures, those of the command's report."""
        return list(self._drawings(self.results[0])) if self.results else []

    def plot(self, name: str | None = None) -> Figure:
        """One figure of the report.

        Args:
            name: of `figures`; None: the first, of several results that which `--plot` draws of all, where there is one.
        Raises:
            InputError: no such figure, one whose data is absent, or several results.
        """
        allowed = self.figures
        if not allowed:
            raise InputError(f"jaxspec {self.study.name} has no figures; use table(), or to_frame() and draw your own")
        if name is not None and name not in allowed:
            raise InputError(f"figure {shown(name)} is unknown{hint(name, allowed)}")
        if len(self.results) != 1:
            if name is None and self.study.plot is not None:
                return load_object(self.study.plot.draw)(self._returned())
            raise InputError(self._take_one())
        name = name or allowed[0]
        figure = self._drawings(self.results[0])[name]()
        if figure is None:
            raise InputError(f"figure {name!r} has no data in this result; others are {', '.join(allowed)}")
        return figure

    def _drawings(self, result: Any) -> Any:
        if self.study.figures:
            return load_object(self.study.figures)(result, self.directory)
        if self.study.plot is None:
            return {}
        one = dataclasses.replace(self, results=(result,))
        draw = self.study.plot.draw
        return {self.study.name: lambda: load_object(draw)(one._returned())}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """What `--json` writes, as text.

        Args:
            path: also written there, whole or not at all.
        Raises:
            InputError: the file cannot be written.
        """
        text = to_json(self.shown.result)
        if path is not None:
            place = Path(as_path("path", path))
            check_file_place(place, "path")
            with _one_line_refusal(place):
                write_text(place, text)
        return text

    def to_frame(self, part: str | None = None) -> pandas.DataFrame:
        """The numbers as a pandas table.

        Args:
            part: a list or a table within each result, as "configurations" or "by_draft_length": a row for each of its
                entries. None: a row for each result, or for each design point of a sweep.
        Raises:
            InputError: no such part.
            ImportError: pandas is not installed.
        """
        points = load_object(self.study.points) if self.study.points and part is None else None
        return frame_of(self.results, part, points=points)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Keep results in a folder of the form of a run directory, for `jaxspec.open_result`.

        Args:
            path: folder, not there yet.
            force: replace one that was saved before.
        Raises:
            InputError: it is there already, or cannot be written, or files have changed of which no digest was taken.
        """
        kept = {"inputs": self._inputs, "source": self.directory, "force": force}
        return save_results(path, self.study.name, self.config, self.shown.result, **kept)

    def _inputs(self) -> Mapping[str, str]:
        """Digests that the results hold, which were taken when files were read; otherwise those of unchanged files."""
        recorded = getattr(self.results[0], "inputs", None) if self.results else None
        if recorded is not None:
            return recorded
        return input_digests(self.config) if self.digest is None else self.digest()

    def __repr__(self) -> str:
        where = f"; in {self.directory}" if self.directory is not None else ""
        titles = (
            self.tables[0].title.plain if len(self.results) == 1 or len(self.devices) == 1 else ", ".join(self.devices)
        )
        drawn = f"; plot() {', '.join(self.figures)}" if self.figures else ""
        return f"<jaxspec {self.study.name}: {titles}{drawn}{where}>"

    def _repr_html_(self) -> str:
        lines = [*self.shown.commands, *self.shown.lines, *([self.shown.files] if self.shown.files else [])]
        lines += [f"plot(): {', '.join(self.figures)}"] if self.figures else []
        first = lines_html(self.shown.first) if self.shown.first else ""
        return first + "".join(table._repr_html_() for table in self.tables) + lines_html(lines)
