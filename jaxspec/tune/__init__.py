"""The objective that joins network and hardware, its gradient, the grid it is compared with, and the proof by decoding."""

from jaxspec.tune.calibration import Calibration, calibrate, target_params
from jaxspec.tune.gradient import Ascent, AscentState, Goal, ascend, ascend_once
from jaxspec.tune.hard import Decoding, best_length, grid_knobs, grid_points, measure_hard
from jaxspec.tune.objective import (
    DraftMeasurement,
    Pricing,
    conditional_acceptance,
    mean_log_speedup,
    measure,
    price,
    priced_footprint,
)
from jaxspec.tune.proof import count_mismatches, decode_prompts, predict_cycles
from jaxspec.tune.statistics import Interval, acceptance, gap_in_standard_errors, speedup_ratio

__all__ = [
    "Ascent",
    "AscentState",
    "Calibration",
    "Decoding",
    "DraftMeasurement",
    "Goal",
    "Interval",
    "Pricing",
    "acceptance",
    "ascend",
    "ascend_once",
    "best_length",
    "calibrate",
    "conditional_acceptance",
    "count_mismatches",
    "decode_prompts",
    "gap_in_standard_errors",
    "grid_knobs",
    "grid_points",
    "mean_log_speedup",
    "measure",
    "measure_hard",
    "predict_cycles",
    "price",
    "priced_footprint",
    "speedup_ratio",
    "target_params",
]
