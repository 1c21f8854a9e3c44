"""Acceptance that a user gives, in whatever form, as conditional rates."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hwmodels import Acceptance, AcceptanceTrace, EngineLogError, TraceError, read_engine_log, read_trace
from hwmodels.speculation import tokens_to_rates
from jaxspec.compress.schemes import Scheme
from jaxspec.errors import InputError
from jaxspec.partial_files import read_toml_beside
from jaxspec.report.formatting import NOT_KNOWN
from jaxspec.results import Quantity, Status
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.runs.run_index import find_run
from jaxspec.settings.acceptance import ALPHA, MAX_PREDICTED_LENGTH, AcceptanceSettings, AcceptanceSource
from jaxspec.settings.draft_kinds import SELF, knob_values
from jaxspec.settings.schemes import all_knobs
from jaxspec.studies.tune.result import TuneResult
from jaxspec.tuning.acceptance_law import AcceptanceByKnobs, LawFit, constant_law, fit_law, positions_law

#: Rates that fall faster from each position to the next may be shares of all cycles.
_STEEP = 0.9


class GivenRates(NamedTuple):
    """Conditional acceptance as a user gave it, or as it is known.

    Attributes:
        rates: by position; one number alone is that of every position.
        cycles: over which it was counted; None where nobody says.
        counted_length: drafted tokens of those cycles; None likewise.
        source: what it was made of, in words.
        notes: what a user should know of it.
        error: of a trace, a factor of the covariance of the rates over its requests.
        by_dataset: of a trace with several data sets, tokens per cycle of each by draft length.
        status: "measured" only where nobody gave any.
    """

    rates: list[float]
    cycles: float | None = None
    counted_length: float | None = None
    source: str = "as given"
    notes: tuple[str, ...] = ()
    error: Float[np.ndarray, "position cause"] | None = None
    by_dataset: Mapping[str, list[float]] = MappingProxyType({})
    status: Status = "input"

    def of_positions(self, positions: int) -> list[float]:
        """By position: those that are known, or one rate as often."""
        return self.rates * positions if len(self.rates) == 1 else self.rates


def given_rates(config: AcceptanceSettings, *, longest: int = MAX_PREDICTED_LENGTH) -> GivenRates | None:
    """The rates that settings stand for; None where none were given.

    Args:
        longest: draft that is counted along a trace.
    Raises:
        InputError: a log that cannot be read, or says too little.
    """
    form, cycles = config.acceptance_form, getattr(config, "acceptance_cycles", None)
    if form is None:
        return None
    if form == "acceptance_trace":
        return _traced(config, longest)
    if form == "acceptance_log":
        return _logged(config, cycles)
    if form == "accepted_per_cycle":
        tokens, length = float(config.accepted_per_cycle or 1.0), int(config.draft_length or 1)
        source = f"from {tokens:g} tokens per cycle with {length} drafted tokens, the same at every position"
        return GivenRates(_solved(tokens, length), cycles, length, source)
    if form == "acceptance_cumulative":
        shares = config.acceptance_cumulative or ()
        source = "from shares of all cycles"
        return GivenRates(_of_shares(shares), cycles, len(shares), source)
    rates = list(config.acceptance or ())
    return GivenRates(rates, cycles, notes=_like_shares(rates))


def _solved(tokens: float, length: float) -> list[float]:
    return [float(np.asarray(Acceptance.from_mean_length(tokens, length).conditional)[0])]


def _of_shares(shares: tuple[float, ...]) -> list[float]:
    # In float64, so that their running product is the share again.
    share = np.asarray(shares, np.float64)
    before = np.concatenate([[1.0], share[:-1]])
    return np.divide(share, before, out=np.zeros_like(share), where=before > 0).tolist()


def _logged(config: AcceptanceSettings, cycles: float | None) -> GivenRates:
    try:
        log = read_engine_log(str(config.acceptance_log), config.draft_length, strict=config.log_length_must_agree)
    except EngineLogError as error:
        raise InputError(str(error)) from error
    if log.shares is not None and len(log.shares) > MAX_PREDICTED_LENGTH:
        raise InputError(
            f"acceptance_log has {len(log.shares)} positions; allowed are 1 to {MAX_PREDICTED_LENGTH}: give "
            "acceptance_cumulative with the first ones"
        )
    counted = "" if log.cycles is None else f", {log.cycles:,.0f} cycles"
    source = (
        f"from {log.lines} line{'s' * (log.lines != 1)} of {config.acceptance_log}{counted}: {log.tokens_per_cycle:.3g} "
        f"tokens per cycle with {log.draft_length:.3g} drafted tokens"
    )
    if log.shares is None:
        rates, source = _solved(log.tokens_per_cycle, log.draft_length), f"{source}, the same at every position"
    else:
        rates = _of_shares(log.shares)
    return GivenRates(rates, cycles or log.cycles, log.draft_length, source)


def given_trace(config: Any) -> tuple[AcceptanceTrace, AcceptanceTrace, str]:
    """The trace that settings name, its requests of their data set, and what these are, in words.

    Args:
        config: has `acceptance_trace`, `drafter` and `dataset`.
    Raises:
        InputError: it is none, or has no such drafter or data set.
    """
    try:
        trace = read_trace(str(config.acceptance_trace), () if config.drafter is None else (config.drafter,))
        chosen = trace if config.dataset is None else trace.of(config.dataset)
    except TraceError as error:
        raise InputError(str(error)) from error
    count = len(chosen.generated)
    counted = f"{count:,} request{'s' * (count != 1)} of {config.dataset or 'all data sets'}"
    return trace, chosen, f"counted along {counted} in {config.acceptance_trace} with {chosen.drafters[0]}"


def _traced(config: AcceptanceSettings, longest: int) -> GivenRates:
    """Of the requests of a trace: tokens per cycle of each length to the last cycle, errors by drawing requests again."""
    trace, chosen, source = given_trace(config)
    sets = list(dict.fromkeys(trace.datasets))
    tokens = chosen.tokens_per_cycle(longest)
    rates = tokens_to_rates(tokens)
    return GivenRates(
        rates.tolist(),
        source=source,
        error=_rate_errors(rates, chosen.bootstrap(longest)) if len(chosen.generated) > 1 else None,
        by_dataset={name: trace.of(name).tokens_per_cycle(longest).tolist() for name in sets} if len(sets) > 1 else {},
    )


def _rate_errors(
    rates: Float[np.ndarray, " position"], drawn: Float[np.ndarray, "draw position"]
) -> Float[np.ndarray, "position cause"]:
    """Errors of rates with which tokens per cycle of every length err as they do among the draws."""
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(drawn, rowvar=False)))
    of_tokens = vectors * np.sqrt(np.maximum(values, 0.0))
    # Derivative of the tokens of each length by each rate: the sum of products without that rate.
    used = rates != 0  # behind a length after which nothing is gained there is nothing to err
    without = lambda last, place: float(np.prod(np.delete(rates[: last + 1], place))) if place <= last else 0.0
    others = [[without(last, place) for place in range(rates.size)] for last in range(rates.size)]
    slopes = np.cumsum(np.array(others), axis=0)[np.ix_(used, used)]
    error = np.zeros_like(of_tokens)
    error[used] = np.linalg.solve(slopes, of_tokens[used])
    return error


def _like_shares(rates: list[float]) -> tuple[str, ...]:
    """A remark where each rate is much lower than the one before, as shares of all cycles are."""
    if len(rates) < 2 or rates[0] >= 1.0 or any(after > _STEEP * before for before, after in itertools.pairwise(rates)):
        return ()
    tokens = 1.0 + float(np.sum(np.cumprod(rates)))
    return (
        f"acceptance falls from {rates[0]:g} to {rates[-1]:g} as shares of all cycles do, which engines print; taken as "
        f"conditional rates it gives {tokens:.2f} tokens per cycle, as shares {1.0 + sum(rates):.2f}: give shares as "
        "acceptance_cumulative",
    )


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


def law_facts(found_law: FoundLaw) -> dict[str, Any]:
    """Origin, status and errors of a law, for a result."""
    facts = {"source": found_law.source, "law_status": found_law.status}
    return facts if found_law.fit is None else facts | {name: getattr(found_law.fit, name) for name in _FIT}


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
    knobs = {}
    for name, value in (configuration.knobs.value or {}).items():
        columns = list(value.values()) if isinstance(value, Mapping) else [value]
        numbers = np.concatenate([np.ravel(np.asarray(column, float)) for column in columns])
        if np.ptp(numbers) > _EQUAL:
            return None
        knobs[name] = float(numbers[0])
    knobs.pop("draft_length", None)
    return knobs


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


#: Kind of draft, or scheme of the target's compressed copy -> acceptance, its scatter, and of what it is.
TABLE = Path(__file__).with_name("known_acceptance.toml")

#: How a user gives acceptance, by where settings come from.
_FLAGS = "--acceptance, --acceptance-log or --acceptance-trace"


class KnownAcceptance(NamedTuple):
    """What is known of a kind of draft.

    Attributes:
        alpha_token: the same at every position.
        deviation: over published rows, or over kinds of text.
        status: "measured" on a network that ran, or "input": published.
        source: of which network, text and decoding, in words.
    """

    alpha_token: float
    deviation: float
    status: Status
    source: str


def known_acceptance(kind: str, scheme: str = "", *, differs: str = "", give: str = _FLAGS) -> KnownAcceptance:
    """What is known of a draft; of a scheme that nobody measured, what is known of the nearest one.

    Args:
        kind: what drafts, as engines call it; `SELF` is the target's compressed copy, by `scheme`.
        differs: in what the draft is known to be another than the measured one, in words.
        give: how a user gives another number, in words.
    Raises:
        InputError: nothing is known of a kind like it.
    """
    table = read_toml_beside(__file__, TABLE.name)
    measured = [name for name, row in table.items() if row["status"] == "measured"]
    near = next((name for name in measured if scheme.startswith(name)), measured[0])
    name = near if kind == SELF else kind
    if name not in table:
        raise InputError(
            f"no acceptance of draft {kind!r} is published with this program; give --acceptance, or --run with a run that "
            "counted it"
        )
    row = table[name]
    if kind == SELF and near != scheme:
        differs = f"scheme {scheme} was not measured, {near} is the nearest"
    source = (
        f"{row['title']} on {', '.join(row['targets'])}; {', '.join(row['texts'])}, decoding {row['decoding']}; "
        f"{row['counted']}, scatter {row['deviation']:g}{f'; {differs}' if differs else ''}; your own: {give}"
    )
    return KnownAcceptance(row["alpha_token"], row["deviation"], row["status"], source)


def rates_or_known(config: Any, kind: str, *, longest: int) -> GivenRates:
    """Conditional rates as they were given; otherwise those that are known of the kind of draft.

    Args:
        config: `AcceptanceSettings` with `scheme` and its knobs.
        longest: see `given_rates`.
        kind: see `known_acceptance`.
    """
    given = given_rates(config, longest=longest)
    if given is not None:
        return given
    others = [name for name, value in knob_values(config).items() if all_knobs()[name].default != value]
    others += ["draft_bits"] * (getattr(config, "draft_bits", None) is not None)
    differs = f"this draft has another {', '.join(others)}" if others and kind == SELF else ""
    known = known_acceptance(kind, config.scheme, differs=differs)
    return GivenRates([known.alpha_token], source=known.source, status=known.status)


def acceptance_line(rates: Quantity[list], source: str | None) -> str:
    """The first line of an output: the acceptance that everything below is computed with."""
    numbers = rates.value or []
    few = ", ".join(f"{rate:.3g}" for rate in numbers[:4]) + ", ..." * (len(numbers) > 4)
    rates_text = f"{numbers[0]:.3g} at every position" if len(set(numbers)) == 1 else f"{few} by position"
    return f"acceptance (alpha_token) {rates_text}, {rates.status}: {source or NOT_KNOWN}"
