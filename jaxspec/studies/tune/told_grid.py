"""The uniform grid as a result has it: each point's acceptance, bits, best draft length, speedup and J."""

from __future__ import annotations

from collections.abc import Sequence

from jaxspec.compress.footprint import mean_draft_bits
from jaxspec.results import given, measured, predicted
from jaxspec.studies.measured.setup import Setup
from jaxspec.studies.tune.result import GridPoint
from jaxspec.tuning.compression_objective import compiled_j
from jaxspec.tuning.hard import best_length, grid_knobs, grid_points, token_acceptance
from jaxspec.tuning.objective import DraftMeasurement, Pricing

__all__ = ["told_grid"]


def told_grid(grid: Sequence[DraftMeasurement], setup: Setup, pricing: Pricing) -> list[GridPoint]:
    """Every point on one device. Args: grid: measurements in the order of `grid_points`."""
    found, scheme = [], setup.scheme
    for point, knobs, measurement in zip(grid_points(scheme), grid_knobs(scheme, setup.config), grid, strict=True):
        length, speedup = best_length(pricing, measurement)
        has_j = scheme.facts.prunes_and_cuts
        found.append(
            GridPoint(
                alpha_token=measured(token_acceptance(measurement.survival, length)),
                bits_per_weight=measured(float(mean_draft_bits(measurement.footprint))),
                draft_length=predicted(length),
                speedup_vs_bf16_ar=predicted(speedup),
                relative_j=measured(float(compiled_j(setup.config)(pricing, measurement, knobs)) if has_j else None),
                knobs={name: given(value) for name, value in point.items()},
            )
        )
    return found
