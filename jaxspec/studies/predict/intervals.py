"""How sure a prediction is: intervals of its main numbers, and of the times of its steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels.analysis.design_point import DesignPoint, Steps
from hwmodels.analysis.uncertainty.acceptance_errors import conditional_errors
from hwmodels.analysis.uncertainty.cycle_errors import cycle_times
from hwmodels.analysis.uncertainty.kernel_errors import step_interval
from jaxspec.results import Quantity, predicted
from jaxspec.results.intervals import HeadlineIntervals
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.tuning.objective import Pricing

__all__ = ["headline", "step_intervals"]


def headline(
    config: PredictConfig, pricing: Pricing, point: DesignPoint, steps: Steps, conditional: list[float]
) -> HeadlineIntervals | None:
    """Intervals of the main numbers, at the best draft length.

    Args:
        conditional: acceptance at all positions.
    """
    length = int(point.draft_length)
    cycle = [(1.0, steps.ar_stored)] if length == 0 else [(float(length), steps.draft), (1.0, steps.verify)]
    plan = hwmodels.chain_plan(length)
    times = cycle_times(
        pricing.device,
        bf16=steps.ar_bf16,
        stored=steps.ar_stored,
        cycle=cycle,
        engine_s=float(hwmodels.engine_time(pricing.engine, plan, batch=config.batch)) if length else 0.0,
        scatter=engine_scatter(config.engine) if length else 0.0,
    )
    # All positions at every draft length, so that one program serves: those beyond it gain nothing, surely.
    inside = np.arange(len(conditional)) < length
    chances, error = np.where(inside, conditional, 0.0), np.zeros(len(conditional))
    if config.acceptance_cycles is not None:
        error = np.where(inside, conditional_errors(jnp.asarray(conditional), config.acceptance_cycles), 0.0)
    return headline_intervals(times, chances.tolist(), error.tolist(), batch=config.batch)


def step_intervals(device: hwmodels.Device, steps: dict[str, Any]) -> Quantity[dict] | None:
    """Ends of the interval of each step's time; None for a device whose kernels nobody measured."""
    found = {name: step_interval(device, step) for name, step in steps.items()}
    known = {name: dataclasses.asdict(one) for name, one in found.items() if one is not None}
    return predicted(known) if known else None
