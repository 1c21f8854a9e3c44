"""What follows from a priced design: sensitivities, design points, calibration, kernel widths."""

from hwmodels.analysis.design_costs import CostTerm, DesignCosts, cost_names
from hwmodels.analysis.design_point import DesignPoint, Steps, chip_area, priced_steps
from hwmodels.analysis.kernel_widths import KernelWidths, kernel_remarks
from hwmodels.analysis.sensitivity import elasticities, finite_elasticities, leaf_names

__all__ = [
    "CostTerm",
    "DesignCosts",
    "DesignPoint",
    "KernelWidths",
    "Steps",
    "chip_area",
    "cost_names",
    "elasticities",
    "finite_elasticities",
    "kernel_remarks",
    "leaf_names",
    "priced_steps",
]
