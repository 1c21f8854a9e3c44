"""From settings of acceptance to a law of a draft's knobs, with where it comes from and how well it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxspec.compress.schemes import Scheme
from jaxspec.errors import InputError
from jaxspec.results import Status
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.runs.kept import find_run
from jaxspec.settings.acceptance import ALPHA, AcceptanceSource
from jaxspec.settings.draft_kinds import SELF
from jaxspec.studies.given_acceptance import given_rates
from jaxspec.studies.known_acceptance import known_acceptance
from jaxspec.studies.tune.result import TuneResult
from jaxspec.tuning.acceptance_law import AcceptanceByKnobs, LawFit, constant_law, fit_law, positions_law

__all__ = ["FoundLaw", "law_facts", "law_line", "resolve_acceptance"]

#: Knobs of one value for all matrices and layers differ by rounding only.
_EQUAL = 1e-4


@dataclasses.dataclass(frozen=True)
class FoundLaw:
    """A law, its origin in words, and its status.

    Attributes:
        fit: how well it holds on its points; None for a constant.
        ranges: knob -> smallest and largest value of the points: nothing is known beyond.
    """

    law: AcceptanceByKnobs
    source: str
    status: Status
    fit: LawFit | None = None
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)


#: Numbers of a fit that results repeat.
_FIT = ("points", "rms_error", "largest_error", "left_out_error", "mean_error")


def law_facts(found: FoundLaw) -> dict[str, Any]:
    """Origin, status and errors of a law, for a result."""
    facts = {"source": found.source, "law_status": found.status}
    return facts if found.fit is None else facts | {name: getattr(found.fit, name) for name in _FIT}


def law_line(facts: Mapping[str, Any] | None) -> str:
    """The first line of an output. Args: facts: see `law_facts`; None: acceptance is an axis, or a number of [set]."""
    if facts is None:
        return "acceptance.alpha_token, input: an axis, or of [set]"
    return f"acceptance, {facts['law_status']}: {facts['source']}"


def resolve_acceptance(source: AcceptanceSource | None, scheme: Scheme) -> FoundLaw:
    """The law that settings stand for; without any, what is known of the scheme's draft at its default knobs.

    Raises:
        InputError: points of knobs that the scheme does not have, a run that is not finished, of another scheme, or without
            points that differ.
    """
    if source is None:
        known = known_acceptance(SELF, scheme.name, give="a table [acceptance]")
        words = f"alpha_token {known.alpha_token:g}, {known.source}"
        return FoundLaw(constant_law(known.alpha_token), words, known.status)
    if source.alpha_token is not None:
        return FoundLaw(constant_law(source.alpha_token), f"alpha_token {source.alpha_token:g}, given", "input")
    if (given := given_rates(source)) is not None:
        return FoundLaw(positions_law(given.rates), f"acceptance {given.source}", "input")
    if source.run is None:
        knobs = {name: column for name, column in source.points.items() if name != ALPHA}
        return _fitted(knobs, source.points[ALPHA], (1.0,), source.source, scheme)
    return _of_run(source.run, scheme)


def _fitted(
    knobs: Mapping[str, list[float]], alpha: list[float], profile: tuple[float, ...], words: str, scheme: Scheme
) -> FoundLaw:
    known = {spec.name: spec for spec in scheme.knob_specs}
    for name, column in knobs.items():
        if name not in known:
            raise InputError(
                f"acceptance has points of {name!r}; scheme {scheme.name} has {', '.join(known) or 'no knobs'}"
            )
        spec = known[name]
        if bad := [value for value in column if not spec.low <= value <= spec.high]:
            raise InputError(f"acceptance has a point with {name} {bad[0]:g}; allowed is {spec.range_text}")
    fit = fit_law(knobs, alpha, profile=profile)
    ranges = {name: (float(np.min(knobs[name])), float(np.max(knobs[name]))) for name in fit.law.names}
    return FoundLaw(fit.law, f"law fitted to {fit.points} points ({words})", "calibrated", fit, ranges)


def _of_run(path: str, scheme: Scheme) -> FoundLaw:
    """From the grid and the uniform configurations of a run; positions from its configurations."""
    run = find_run(path)
    if run.command not in ("tune", "evaluate") or not run.finished:
        said = f"a run of {run.command}" if run.finished else "not finished"
        raise InputError(f"acceptance run {path!r} is {said}; give a finished run of jaxspec tune or evaluate")
    result = TuneResult.load(Path(path) / "result.json")[0]
    if result.scheme != scheme.name:
        raise InputError(f"acceptance run {path!r} is of scheme {result.scheme}; the problem has scheme {scheme.name}")
    rows, alpha = [], []
    for point in result.grid:
        rows.append({name: float(value.known) for name, value in point.knobs.items()})
        alpha.append(float(point.alpha_token.known))
    if not rows:
        for configuration in result.configurations.values():
            if (knobs := _uniform(configuration)) is not None:
                rows.append(knobs)
                alpha.append(float(configuration.acceptance.alpha_token.known))
    names: list[str] = sorted(set(rows[0]) if rows else ())
    columns = {name: [row[name] for row in rows] for name in names}
    words = f"alpha_token of {path}, measured on {result.model.name}"
    return _fitted(columns, alpha, _profile(result), words, scheme)


def _uniform(configuration: Configuration) -> dict[str, float] | None:
    """Knobs of a configuration whose matrices and layers all have the same; None of another."""
    found = {}
    for name, value in (configuration.knobs.value or {}).items():
        columns = list(value.values()) if isinstance(value, Mapping) else [value]
        numbers = np.concatenate([np.ravel(np.asarray(column, float)) for column in columns])
        if np.ptp(numbers) > _EQUAL:
            return None
        found[name] = float(numbers[0])
    found.pop("draft_length", None)
    return found


def _profile(result: ConfigurationsResult) -> tuple[float, ...]:
    """Hazard of each position over that of alpha_token, the mean over configurations, as far as all of them go."""
    profiles = []
    for configuration in result.configurations.values():
        rates = configuration.acceptance
        if rates.conditional.value and rates.alpha_token.number:
            hazards = -np.log(np.clip(rates.conditional.value, 1e-4, 1 - 1e-6))
            profiles.append(hazards / -np.log(np.clip(rates.alpha_token.number, 1e-4, 1 - 1e-6)))
    if not profiles:
        return (1.0,)
    shortest = min(map(len, profiles))
    return tuple(np.mean([profile[:shortest] for profile in profiles], axis=0).tolist())
