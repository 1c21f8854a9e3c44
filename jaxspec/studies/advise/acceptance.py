"""Acceptance by position with its error: given, counted in a finished run, or known of drafts of that kind."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hwmodels.analysis.uncertainty.acceptance_errors import conditional_errors
from jaxspec.errors import InputError
from jaxspec.files import read_json
from jaxspec.results.quantity import Status
from jaxspec.settings.draft_kinds import SELF
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.given_acceptance import given_rates
from jaxspec.studies.known_acceptance import known_acceptance

__all__ = ["DraftAcceptance", "draft_acceptance", "of_another_draft"]

#: Configurations of a run, the first of which that it has is taken.
_CONFIGURATIONS = ("tuned", "given")


@dataclasses.dataclass(frozen=True, eq=False)
class DraftAcceptance:
    """Acceptance of a chain.

    Attributes:
        conditional: "position".
        error: "position cause", a factor of its covariance; 0 where nothing is known.
        status: "input" or "measured".
        source: where it comes from, in words.
        notes: what a user should know of it.
    """

    conditional: Float[np.ndarray, " position"]
    error: Float[np.ndarray, "position cause"]
    status: Status
    source: str
    notes: tuple[str, ...] = ()


def draft_acceptance(config: AdviseConfig) -> DraftAcceptance:
    """The acceptance that a configuration means.

    Raises:
        InputError: a run without it, or a kind of draft of which none is published.
    """
    if config.run is not None:
        return _counted(config.run)
    if (given := given_rates(config, longest=config.max_draft_length)) is None:
        return _published(config)
    chances = np.asarray(given.of_positions(config.max_draft_length), np.float64)
    if given.error is not None:
        return DraftAcceptance(chances, given.error, "input", given.source, given.notes)
    if given.cycles is None:
        return DraftAcceptance(chances, np.zeros((chances.size, 1)), "input", given.source, given.notes)
    error = np.diag(np.asarray(conditional_errors(chances, given.cycles), np.float64))
    source = f"{given.source}, counted over {given.cycles:,.0f} cycles"
    return DraftAcceptance(chances, error, "input", given.source if config.acceptance_log else source, given.notes)


def of_another_draft(config: AdviseConfig) -> tuple[str, ...]:
    """What is said where a run counted the acceptance of another draft than the one that is priced."""
    if config.run is None or config.draft == SELF:
        return ()
    return (
        f"the acceptance of {config.run} is that of the target's compressed copy, which evaluate and tune measure, and the "
        f"price is that of {config.draft}; --draft {SELF} prices the copy, --acceptance gives that of another draft",
    )


def _published(config: AdviseConfig) -> DraftAcceptance:
    known, length = known_acceptance(config.kind, config.scheme), config.max_draft_length
    # One cause: a workload that is easier for a draft is so at every position.
    return DraftAcceptance(
        np.full(length, known.alpha_token), np.full((length, 1), known.deviation), known.status, known.source
    )


def _counted(path: str) -> DraftAcceptance:
    """Of the first device's tuned or given draft."""
    file = Path(path) / "result.json" if os.path.isdir(path) else Path(path)
    try:
        raw = read_json(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"run {path!r} cannot be read ({error}); give a finished run of evaluate or tune") from error
    except ValueError as error:
        raise InputError(f"{str(file)!r} is not valid JSON ({error}); give a result.json") from error
    first = raw[0] if isinstance(raw, list) and raw else raw
    found = first.get("configurations") if isinstance(first, Mapping) else None
    name = next((name for name in _CONFIGURATIONS if isinstance(found, Mapping) and name in found), None)
    try:
        if name is None or not isinstance(found, Mapping):
            raise TypeError("no configuration that tune or evaluate writes")
        return _of_configuration(found[name], f"counted in {path}, configuration {name}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{str(file)!r} holds no acceptance by position ({error}); give a finished run of evaluate or tune"
        ) from error


def _of_configuration(entry: Mapping[str, Any], source: str) -> DraftAcceptance:
    raw = entry["acceptance"]["conditional"]
    numbers = np.array([np.nan if value is None else float(value) for value in raw], np.float64)
    reached = np.flatnonzero(~np.isfinite(numbers))
    chances = numbers[: reached[0]] if reached.size else numbers
    if not chances.size or np.any((chances < 0) | (chances > 1)):
        raise ValueError(f"conditional acceptance is {raw!r}")
    tokens, error = 1.0 + np.sum(np.cumprod(chances)), entry.get("tokens_per_cycle_standard_error")
    if error is not None and not math.isfinite(float(error)):
        raise ValueError(f"tokens_per_cycle_standard_error is {error!r}")
    if error is None or not float(error) > 0:
        return DraftAcceptance(chances, np.zeros((chances.size, 1)), "measured", source)
    # As many independent cycles as explain the standard error of tokens per cycle, which is taken over prompts.
    one = np.asarray(conditional_errors(chances, 1000.0), np.float64)
    slopes = np.array([_slope(chances, position) for position in range(chances.size)])
    scale = float(error) / float(np.sqrt(np.sum((slopes * one) ** 2)))
    return DraftAcceptance(chances, np.diag(one * scale), "measured", f"{source}: {tokens:.2f} ± {float(error):.2f}")


def _slope(chances: Float[np.ndarray, " position"], position: int) -> float:
    """Derivative of tokens per cycle by the acceptance of a position."""
    before = np.prod(chances[:position])
    return float(before * (1.0 + np.sum(np.cumprod(chances[position + 1 :]))))
