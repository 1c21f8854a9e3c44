"""Fit a GPU's routed experts (`hwmodels.compute.gpu_experts`) to a table of measured launches: the same for every GPU.

Start values, bounds and loss are fixed here. Rows that are fitted to have uneven loads, as routers give, and parts of experts
that are used in practice (256 and more). Left out are weights that fit into the second-level cache, and launches for which a
library fell back to another kernel, up to 12 times slower than its neighbours: those of a shape and distribution of which no
row comes within a factor of 4 of the data sheet's roofline.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.expert_tables import ExpertTable
from hwmodels.analysis.calibration.kernel_tables import DataSheet
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, fit, predicted_rows
from hwmodels.analysis.calibration.table_routing import EVEN
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts, expert_layer_time

__all__ = [
    "LEAST_INNER_SIZE",
    "ExpertFit",
    "expert_coefficients",
    "expert_parameters",
    "expert_roofline",
    "expert_unit",
    "fell_back",
    "fit_experts",
    "modelled_rows",
    "predict_experts",
]

_SHARED = (
    Parameter("launch_s", 2e-5, 1e-6, 2e-4),
    Parameter("pass_cost", 2.0, 1e-2, 50.0),
    Parameter("memory_efficiency", 0.85, 0.2, 1.0),
    Parameter("operand_cost", 50.0, 0.1, 2000.0),
    Parameter("wave_rounding", 0.5, 1e-3, 1.0),
)
#: What only 16-bit weights have, and only packed ones; the other is 0.
_OWN = {
    "prologue_elements": Parameter("prologue_elements", 200.0, 1.0, 3000.0),
    "compute_cost": Parameter("compute_cost", 2.0, 0.1, 20.0),
}

#: Columns of the part of an expert that one GPU holds, of which fewer are not fitted to.
LEAST_INNER_SIZE = 256
_FALLBACK_FACTOR = 4.0


@dataclasses.dataclass(frozen=True)
class ExpertFit:
    """A unit of one format, its fit, and what it predicts for every row of the table, "row"."""

    unit: GpuExperts
    fit: Fit
    predicted_s: npt.NDArray[np.float64]


def expert_parameters(weight_bits: float) -> tuple[Parameter, ...]:
    """What is fitted for a format of that width."""
    return (*_SHARED, _OWN["prologue_elements" if weight_bits > 8 else "compute_cost"])


def expert_coefficients(values: Mapping[str, Any]) -> ExpertCoefficients:
    """Coefficients from fitted values by name; those that the format does not have are 0."""
    return ExpertCoefficients(**(dict.fromkeys(_OWN, 0.0) | dict(values)))


@functools.cache
def predict_experts(sheet: DataSheet, weight_bits: float):
    """The model to fit, for `least_squares.fit`: conditions as `ExpertTable.conditions` has them."""

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        unit = expert_unit(sheet, expert_coefficients(values))
        return expert_layer_time(unit, weight_bits=weight_bits, **conditions)

    return predict


def expert_roofline(table: ExpertTable, sheet: DataSheet) -> npt.NDArray[np.float64]:
    """Seconds at the data sheet's rates, "row": the touched experts' weights or the arithmetic."""
    matrices = (2.0 + table.gated) * table.hidden_size * table.inner_size
    read_s = table.touched * matrices * (table.weight_bits / 8) / sheet.bandwidth_bytes_per_s
    return np.maximum(read_s, 2.0 * table.tokens * table.experts_per_token * matrices / sheet.peak_flops_per_s)


def fell_back(table: ExpertTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Rows whose library chose another kernel, "row"; see the module's heading."""
    slowness = table.seconds / expert_roofline(table, sheet)
    keys = [f"{n} {i} {d}" for n, i, d in zip(table.network, table.inner_size, table.distribution)]
    _, group = np.unique(keys, return_inverse=True)
    least = np.full(group.max() + 1, np.inf)
    np.minimum.at(least, group, slowness)
    return least[group] >= _FALLBACK_FACTOR


def modelled_rows(table: ExpertTable, sheet: DataSheet, cache_bytes: float) -> npt.NDArray[np.bool_]:
    """Rows that the model is for, even loads among them, "row"; see the module's heading."""
    stored = table.touched * (2.0 + table.gated) * table.hidden_size * table.inner_size * (table.weight_bits / 8)
    return (table.inner_size >= LEAST_INNER_SIZE) & (stored > cache_bytes) & ~fell_back(table, sheet)


def fit_experts(
    table: ExpertTable,
    sheet: DataSheet,
    train: npt.ArrayLike | None = None,
    *,
    cache_bytes: float = 0.0,
    **options: Any,
) -> ExpertFit:
    """Fit the six numbers to those rows of `train` (all unless given) that are modelled and have uneven loads.

    Args:
        table: measured launches.
        sheet: the GPU's data sheet.
        train: "row", true where a row is fitted to.
        cache_bytes: of the second-level cache.
        options: of `least_squares.fit`.
    Raises:
        ValueError: as `least_squares.fit`.
    """
    chosen = np.ones(len(table.tokens), bool) if train is None else np.asarray(train, bool)
    chosen = chosen & modelled_rows(table, sheet, cache_bytes) & (table.distribution != EVEN)
    predict, rows = predict_experts(sheet, table.weight_bits), table.conditions()
    keys = np.array([f"{n} {i}" for n, i in zip(table.network, table.inner_size)])
    fitted = fit(
        predict,
        expert_parameters(table.weight_bits),
        {name: values[chosen] for name, values in rows.items()},
        table.seconds[chosen],
        groups=keys[chosen],
        **options,
    )
    predicted = predicted_rows(predict, fitted.estimates, rows)
    return ExpertFit(expert_unit(sheet, expert_coefficients(fitted.estimates)), fitted, predicted)


def expert_unit(sheet: DataSheet, coefficients: ExpertCoefficients) -> GpuExperts:
    """A GPU of that data sheet with these numbers."""
    return GpuExperts(
        peak_flops_per_s=sheet.peak_flops_per_s,
        bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s,
        multiprocessors=sheet.multiprocessors,
        coefficients=coefficients,
    )
