"""A study as a function: its settings are keywords, with the defaults, limits, help and error lines of the command line."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import os
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from jaxspec.api.results import StudyResults
from jaxspec.errors import InputError
from jaxspec.registries import load_object
from jaxspec.report.terminal import notebook_console
from jaxspec.runs.inputs import InputWatch
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import KeptRun, check_settings_file, find_run
from jaxspec.settings.base import Layer, Settings, build_config, expect, layered_config, quick_help, read_layer
from jaxspec.settings.coercion import as_path, refuse_traced
from jaxspec.settings.fields import explained, fields_of, hints, key_of
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.studies.study import STUDIES, Study, find_study

__all__ = [
    "notebook_reporter",
    "open_result",
    "resume",
    "run_study",
    "study_call",
    "study_of",
]

#: Keywords of every study that writes, of those with quick settings, and of those that report progress.
_OUT, _FORCE, _QUICK, _REPORTER = "out", "force", "quick", "reporter"

_WIDTH = 100


def study_call(name: str) -> Callable[..., StudyResults]:
    """The function of a study of the registry."""
    return _call(find_study(name), tuple(SCHEME_FACTS))


@functools.cache
def _call(study: Study, schemes: tuple[str, ...]) -> Callable[..., StudyResults]:
    del schemes  # whose knobs are settings: with another scheme the function is another one

    def call(config: Any = None, /, **given: Any) -> StudyResults:
        own = {name: given.pop(name) for name in _own_keywords(study) if name in given}
        return run_study(study, _config(study, config, given, quick=bool(own.pop(_QUICK, False))), **own)

    call.__name__ = call.__qualname__ = study.name
    call.__module__ = "jaxspec"
    call.__doc__ = _docstring(study)
    call.__signature__ = _signature(study)  # pyright: ignore[reportFunctionMemberAccess] - read by `inspect`
    return call


def run_study(
    study: Study,
    config: Settings,
    *,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> StudyResults:
    """Run a study, resume it, or return the result of a finished run of it.

    Args:
        out, force: of a study that writes.
        reporter: shows progress; None: that of a notebook, elsewhere nothing is shown.
    Raises:
        InputError: bad input; nothing is lost.
    """
    writes: dict[str, Any] = {}
    if study.out is not None:
        if out is not None:
            out = as_path(_OUT, out)
            study.out.check(out, _OUT)
        writes = {"out": out, "force": force, "reporter": reporter or notebook_reporter()}
    watch = InputWatch(config)
    results = StudyResults.of(study, config, load_object(study.run)(config, **writes))
    return dataclasses.replace(results, digest=watch.digest)


def _own_keywords(study: Study) -> dict[str, tuple[Any, Any, str]]:
    """Keywords that are no settings: default, type and help."""
    own: dict[str, tuple[Any, Any, str]] = {}
    if study.out is not None:
        own[_OUT] = (None, str | None, f"{study.out.what} [default: {study.out.default}]")
        own[_FORCE] = (False, bool, study.out.force)
        own[_REPORTER] = (None, Reporter | None, "Shows progress [default: shown in a notebook, nowhere elsewhere]")
    if said := quick_help(study.config):
        own[_QUICK] = (False, bool, said)
    return own


def _config(study: Study, given: Any, settings: Mapping[str, Any], *, quick: bool) -> Settings:
    """The configuration of a call: keywords over a configuration, a file or the study's argument over (quick) defaults."""
    refuse_traced(study.argument or "config", None if isinstance(given, Mapping) else given)
    if (rates := getattr(settings.get("acceptance"), "conditional", None)) is not None:  # an object of hwmodels
        settings = {**settings, "acceptance": rates}
    base: Any = {}
    if isinstance(given, Mapping):
        base = given
    elif isinstance(given, (str, os.PathLike)):
        if study.argument:
            if study.argument in settings:
                raise InputError(f"{study.argument} came twice: {given!r}, and by keyword; give it once")
            settings = {study.argument: given, **settings}
        else:
            base = read_layer(as_path("configuration", given))
    elif given is not None:
        expect(study.config, given)
        if not settings and not quick:
            return given
        base = Layer({key_of(field): getattr(given, field.name) for field in fields_of(given)})
    return layered_config(study.config, settings, base, quick=quick)


def _signature(study: Study) -> inspect.Signature:
    fields, kinds = fields_of(study.config), hints(study.config)
    keyword = inspect.Parameter.KEYWORD_ONLY
    first = inspect.Parameter("config", inspect.Parameter.POSITIONAL_ONLY, default=None)
    parameters = [first]
    for field in fields:
        parameters.append(
            inspect.Parameter(key_of(field), keyword, default=_default(field), annotation=kinds[field.name])
        )
    for name, (default, kind, _) in _own_keywords(study).items():
        parameters.append(inspect.Parameter(name, keyword, default=default, annotation=kind))
    return inspect.Signature(parameters, return_annotation=StudyResults)


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _docstring(study: Study) -> str:
    """The command's help without its shell lines, and the help of every setting."""
    paragraphs = [text for text in re.split(r"\n\s*\n", study.help.strip()) if not text.startswith("\b")]
    fields, kinds = fields_of(study.config), hints(study.config)
    first = f"{study.argument}, " if study.argument else "path of a TOML file, "
    lines = [*_wrapped("config", f"{first}a {study.config.__name__}, or a mapping of settings; keywords win over it.")]
    for field in fields:
        lines += _wrapped(key_of(field), explained(field, kinds[field.name]))
    for name, (_, _, words) in _own_keywords(study).items():
        lines += _wrapped(name, words)
    returns = (
        "    results, one for each device where there are devices, with `table()`, `plot()`, `save()`, `to_json()`"
    )
    raises = "    InputError: bad input, in one line; nothing is lost."
    parts = ["\n\n".join(paragraphs), "\n".join(["Args:", *lines, "Returns:", returns, "Raises:", raises])]
    return "\n\n".join(parts) + "\n"


def _wrapped(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name}: {text}", _WIDTH, initial_indent="    ", subsequent_indent=" " * 8)


def notebook_reporter() -> Reporter:
    """A reporter that shows the last line of progress below a cell; one that says nothing where there is no notebook."""
    return Reporter() if notebook_console() is not None else Reporter(Console(file=io.StringIO(), quiet=True))


# Runs and saved results, opened again or carried on.


def open_result(path: str | os.PathLike[str]) -> StudyResults:
    """The result of a finished run, or a saved one.

    Args:
        path: run directory, or folder of `StudyResults.save`.
    Raises:
        InputError: no such directory, an unfinished run, or a damaged file.
    """
    run = find_run(as_path("path", path))
    study, config = study_of(run)
    if not run.finished:
        raise InputError(f"run {str(path)!r} is not finished; jaxspec runs resume {path} goes on with it")
    kind, several, in_directory = _returned(study)
    results = kind.load(run.path / "result.json")
    if not several and len(results) != 1:
        raise InputError(f"{str(run.path / 'result.json')!r} holds {len(results)} results instead of one; run it again")
    kept = run if in_directory else None
    return StudyResults(study, config, tuple(results), kept, several, digest=lambda: run.inputs)


def resume(path: str | os.PathLike[str], *, reporter: Reporter | None = None) -> StudyResults:
    """Go on with a run that was stopped; one that is finished is opened.

    Args:
        path: run directory.
        reporter: shows progress; None: that of a notebook, elsewhere nothing is shown.
    Raises:
        InputError: no run directory, or inputs that have changed since it was begun.
    """
    run = find_run(as_path("path", path))
    if run.finished:
        return open_result(path)
    study, config = study_of(run)
    return run_study(study, config, out=run.path, reporter=reporter)


def study_of(run: KeptRun) -> tuple[Study, Settings]:
    """The command that made a run, and its configuration.

    Raises:
        InputError: a command that is not known, settings that it does not have, or a changed file of settings.
    """
    check_settings_file(run.path)
    layer = read_layer(run.path / "config.toml")
    name = run.command
    if name is None:  # of an earlier version, which did not record it
        name = next((name for name in STUDIES if set(layer.values) <= _keys(name)), None)
    if name is None or name not in STUDIES:
        raise InputError(f"run {str(run.path)!r} is of command {name!r}; this version knows {', '.join(STUDIES)}")
    study = find_study(name)
    return study, build_config(study.config, layer)


def _keys(name: str) -> set[str]:
    return {key_of(field) for field in fields_of(find_study(name).config)}


class _Returned(typing.NamedTuple):
    """What a study's function returns: records of this class, a list or one, with a run directory or without."""

    kind: Any
    several: bool
    in_directory: bool


def _returned(study: Study) -> _Returned:
    hint = typing.get_type_hints(load_object(study.run))["return"]
    in_directory = typing.get_origin(hint) is tuple
    inner = typing.get_args(hint)[0] if in_directory else hint
    several = typing.get_origin(inner) is list
    return _Returned(typing.get_args(inner)[0] if several else inner, several, in_directory)
