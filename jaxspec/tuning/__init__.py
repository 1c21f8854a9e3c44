"""The objective that joins network and hardware, its gradient, and the grid it is compared with."""

from jaxspec.tuning.calibration import Calibration, calibrate, target_params
from jaxspec.tuning.gradient import Ascent, AscentState, Goal, ascend, ascend_once
from jaxspec.tuning.hard import best_length, grid_knobs, grid_points, measure_hard
from jaxspec.tuning.objective import (
    DraftMeasurement,
    Pricing,
    conditional_acceptance,
    mean_log_speedup,
    measure,
    price,
)
from jaxspec.tuning.priced_kinds import priced_footprint

__all__ = [
    "Ascent",
    "AscentState",
    "Calibration",
    "DraftMeasurement",
    "Goal",
    "Pricing",
    "ascend",
    "ascend_once",
    "best_length",
    "calibrate",
    "conditional_acceptance",
    "grid_knobs",
    "grid_points",
    "mean_log_speedup",
    "measure",
    "measure_hard",
    "price",
    "priced_footprint",
    "target_params",
]
