"""The objective that joins network and hardware, its gradient, and the grid it is compared with."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.tuning.calibration import Calibration, calibrate, target_params
    from jaxspec.tuning.compression_objective import best_length, grid_knobs, grid_points, measure_hard
    from jaxspec.tuning.gradient import Ascent, Goal, ascend, marginal_returns
    from jaxspec.tuning.objective import (
        DraftMeasurement,
        conditional_acceptance,
        mean_log_speedup,
        measure,
        price,
        priced_footprint,
    )

__all__ = [
    "Ascent",
    "Calibration",
    "DraftMeasurement",
    "Goal",
    "ascend",
    "best_length",
    "calibrate",
    "conditional_acceptance",
    "grid_knobs",
    "grid_points",
    "marginal_returns",
    "mean_log_speedup",
    "measure",
    "measure_hard",
    "price",
    "priced_footprint",
    "target_params",
]

lazy_names(__name__)
