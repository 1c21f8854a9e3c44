"""Acceptance that a user gives, in whatever form, as conditional rates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hwmodels import (
    Acceptance,
    AcceptanceTrace,
    EngineLogError,
    TraceError,
    read_engine_log,
    read_trace,
    tokens_to_rates,
)
from jaxspec.errors import InputError
from jaxspec.results.quantity import Status
from jaxspec.settings.acceptance import MAX_PREDICTED_LENGTH, AcceptanceSettings

__all__ = ["GivenRates", "given_rates", "given_trace"]

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
        status: "measured" only where nobody gave any; see `jaxspec.studies.known_acceptance`.
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
        found = read_engine_log(str(config.acceptance_log), config.draft_length, strict=config.log_length_must_agree)
    except EngineLogError as error:
        raise InputError(str(error)) from error
    if found.shares is not None and len(found.shares) > MAX_PREDICTED_LENGTH:
        raise InputError(
            f"acceptance_log has {len(found.shares)} positions; allowed are 1 to {MAX_PREDICTED_LENGTH}: give "
            "acceptance_cumulative with the first ones"
        )
    counted = "" if found.cycles is None else f", {found.cycles:,.0f} cycles"
    source = (
        f"from {found.lines} line{'s' * (found.lines != 1)} of {config.acceptance_log}{counted}: {found.tokens_per_cycle:.3g} "
        f"tokens per cycle with {found.draft_length:.3g} drafted tokens"
    )
    if found.shares is None:
        rates, source = _solved(found.tokens_per_cycle, found.draft_length), f"{source}, the same at every position"
    else:
        rates = _of_shares(found.shares)
    return GivenRates(rates, cycles or found.cycles, found.draft_length, source)


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
