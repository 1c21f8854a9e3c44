"""How sure a prediction is: intervals of its main numbers at every draft length and batch, and of the times of its steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import hwmodels
from hwmodels.analysis.uncertainty.acceptance_errors import conditional_errors
from hwmodels.analysis.uncertainty.cycle_errors import chain_numbers
from hwmodels.analysis.uncertainty.delta_method import LogNormal
from hwmodels.analysis.uncertainty.kernel_errors import step_interval
from hwmodels.speculation.chains import PricedChains
from jaxspec.results import Quantity, predicted
from jaxspec.results.intervals import CycleEnds, HeadlineIntervals
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.given_acceptance import GivenRates
from jaxspec.studies.headline_intervals import covered_by, cycle_ends, held_intervals
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.tuning.objective import Pricing

__all__ = ["KnownErrors", "chain_intervals", "headline", "known_errors", "row_ends", "step_intervals"]


@flax.struct.dataclass
class KnownErrors:
    """What is known to err beside kernels.

    Attributes:
        acceptance: standard errors, or of a trace a factor of their covariance.
        scatter: of the engine's cycles, a logarithm's.
    """

    acceptance: Float[Array | np.ndarray, " position"] | Float[Array | np.ndarray, "position cause"]
    scatter: Float[Array | np.ndarray, ""]


def known_errors(
    config: PredictConfig, pricing: Pricing, conditional: list[float], rates: GivenRates
) -> KnownErrors | None:
    """Errors that a prediction inherits; None where nothing is known to err.

    Args:
        conditional: `rates` of all positions.
    """
    error = np.zeros(len(conditional), np.float32)
    if rates.error is not None:
        error = rates.error.astype(np.float32)
    elif rates.cycles is not None:
        error = np.asarray(conditional_errors(jnp.asarray(conditional), rates.cycles))
    scatter = engine_scatter(config.engine, device=pricing.device)
    if not covered_by(pricing.device, acceptance=bool(np.any(error != 0)), scatter=scatter):
        return None
    return KnownErrors(error, np.asarray(scatter, np.float32))


def chain_intervals(
    pricing: Pricing,
    chains: PricedChains,
    acceptance: hwmodels.Acceptance,
    errors: KnownErrors | None,
    *,
    batch: Any,
) -> dict[str, LogNormal]:
    """Main numbers with their errors at every draft length, leaves "gamma"; empty where nothing is known to err."""
    if errors is None:
        return {}
    numbers = lambda length: chain_numbers(
        pricing.device,
        chains.cycle,
        length,
        jnp.asarray(acceptance.conditional),
        error=jnp.asarray(errors.acceptance),
        batch=batch,
        scatter=errors.scatter,
    )
    return jax.vmap(numbers)(chains.result.draft_lengths)


def headline(
    errors: KnownErrors | None, pricing: Pricing, found: dict[str, LogNormal], length: int
) -> HeadlineIntervals | None:
    """Intervals of the main numbers.

    Args:
        found: at every draft length.
        length: the best one.
    """
    if errors is None:
        return None
    counted = bool(np.any(np.asarray(errors.acceptance)[:length] != 0))
    covers = covered_by(pricing.device, acceptance=counted, scatter=float(errors.scatter) if length else 0.0)
    return held_intervals(found, covers, (length,))


def row_ends(found: dict[str, LogNormal], *at: int) -> CycleEnds | None:
    """Intervals of a row of a table; None where nothing is known to err."""
    ends: dict[str, Any] = cycle_ends(found, at)
    return CycleEnds(**ends) if ends else None


def step_intervals(device: hwmodels.Device, steps: dict[str, Any]) -> Quantity[dict] | None:
    """Ends of the interval of each step's time; None for a device whose kernels nobody measured."""
    found = {name: step_interval(device, step) for name, step in steps.items()}
    known = {name: dataclasses.asdict(one) for name, one in found.items() if one is not None}
    return predicted(known) if known else None
