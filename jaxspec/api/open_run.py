"""Runs and saved results, opened again or carried on."""

from __future__ import annotations

import os
import typing
from typing import Any

from jaxspec.api.calls import run_study
from jaxspec.api.results import StudyResults
from jaxspec.errors import InputError
from jaxspec.registries import load_object
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import KeptRun, check_settings_file, find_run
from jaxspec.settings.base import Settings, build_config
from jaxspec.settings.coercion import as_path
from jaxspec.settings.fields import fields_of, key_of
from jaxspec.settings.toml import read_layer
from jaxspec.studies.study import STUDIES, Study, find_study

__all__ = ["open_result", "resume", "study_of"]


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
