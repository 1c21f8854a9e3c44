"""What follows from a priced design: sensitivities, design points, calibration, kernel widths."""

from hwmodels.analysis.design_point import (
    CostTerm,
    DesignCosts,
    DesignPoint,
    Steps,
    chip_area,
    cost_names,
    elasticities,
    leaf_names,
    priced_steps,
)
from hwmodels.analysis.kernel_widths import KernelWidths, kernel_remarks

__all__ = [
    "CostTerm",
    "DesignCosts",
    "DesignPoint",
    "KernelWidths",
    "Steps",
    "chip_area",
    "cost_names",
    "elasticities",
    "kernel_remarks",
    "leaf_names",
    "priced_steps",
]
