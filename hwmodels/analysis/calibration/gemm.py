"""Fit a GPU's matrix products (`hwmodels.compute.gpu`) to a table of measured ones: the same procedure for every GPU.

Start values, bounds and loss are fixed here and nowhere chosen by GPU. A time shorter than the data sheet's bandwidth allows
shows that the weights came from a cache, as they do not within a model. All rows of such a shape are left out, and counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import DataSheet, GemmTable
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, fit
from hwmodels.compute.gpu import GpuGemm, gemm_time
from hwmodels.compute.gpu_formats import GemmCoefficients, stack_widths

__all__ = [
    "PACKED_PARAMETERS",
    "PARAMETERS",
    "PROLOGUE_ELEMENTS",
    "GemmFit",
    "baselines",
    "coefficients",
    "fit_gemm",
    "from_memory",
    "parameters_of",
    "predict_gemm",
]

_SHARED = (
    Parameter("launch_s", 5e-6, 1e-7, 1e-4),
    Parameter("memory_efficiency", 0.85, 0.2, 1.0),
    Parameter("compute_efficiency", 0.75, 0.1, 1.25),
    Parameter("operand_cost", 50.0, 0.1, 2000.0),
    Parameter("wave_rounding", 0.5, 1e-3, 1.0),
)

#: Of products with 16-bit weights; `prologue_elements` is `PROLOGUE_ELEMENTS`.
PARAMETERS = (
    *_SHARED,
    Parameter("split_s", 1e-6, 1e-8, 1e-4),
    Parameter("sag_exponent", 0.03, 1e-4, 0.3),
    Parameter("row_cost", 0.05, 1e-4, 1.0),
)

#: Between what A100, H100, H200, L40S and B200 tables give (80 to 270) where it is fitted; none of them is sensitive to it.
PROLOGUE_ELEMENTS = 200.0

#: Of products with packed weights (8 bits and fewer), unpacked in the kernel.
PACKED_PARAMETERS = (
    *_SHARED,
    Parameter("depth_s", 1e-6, 1e-8, 1e-4),
    Parameter("switch_s", 1e-6, 1e-8, 1e-4),
    Parameter("prologue_elements", 100.0, 1.0, 3000.0),
)


@dataclasses.dataclass(frozen=True)
class GemmFit:
    """A unit of one format, its fit, and what it predicts for every row of the table, "row"."""

    unit: GpuGemm
    fit: Fit
    predicted_s: npt.NDArray[np.float64]


def parameters_of(weight_bits: float) -> tuple[Parameter, ...]:
    """What is fitted for a format of that width."""
    return PARAMETERS if weight_bits > 8 else PACKED_PARAMETERS


def coefficients(values: Mapping[str, Any]) -> GemmCoefficients:
    """Coefficients from fitted values by name; those that the format does not have are 0, the prologue as it is fixed."""
    given = {"prologue_elements": PROLOGUE_ELEMENTS} | dict(values)
    return GemmCoefficients(
        **{field.name: given.get(field.name, 0.0) for field in dataclasses.fields(GemmCoefficients)}
    )


def predict_gemm(sheet: DataSheet, weight_bits: float):
    """The model to fit, for `least_squares.fit`: conditions m, k, n.

    Args:
        sheet: the GPU's data sheet.
        weight_bits: of every product.
    """

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        unit = _unit(sheet, stack_widths([coefficients(values)]), (weight_bits,))
        return gemm_time(unit, conditions["m"], conditions["k"], conditions["n"], weight_bits=weight_bits)

    return predict


def fit_gemm(table: GemmTable, sheet: DataSheet, train: npt.ArrayLike | None = None, **options: Any) -> GemmFit:
    """Fit the eight numbers of a table's format.

    Args:
        table: measured products.
        sheet: the GPU's data sheet.
        train: "row", true where a row is fitted to; all rows unless given.
        options: of `least_squares.fit`.
    Raises:
        ValueError: as `least_squares.fit`.
    """
    train = np.ones(len(table.m), bool) if train is None else np.asarray(train, bool)
    train = train & from_memory(table, sheet)
    predict = predict_gemm(sheet, table.weight_bits)
    rows = {"m": table.m, "k": table.k, "n": table.n}
    fitted = fit(
        predict,
        parameters_of(table.weight_bits),
        {name: values[train] for name, values in rows.items()},
        table.seconds[train],
        groups=_shape(table)[train],
        **options,
    )
    with jax.enable_x64(True):
        predicted = np.asarray(jax.jit(predict)(fitted.estimates, {name: jnp.asarray(v) for name, v in rows.items()}))
    stacked = jax.tree.map(lambda leaf: np.asarray([leaf], np.float32), coefficients(fitted.estimates))
    return GemmFit(_unit(sheet, stacked, (table.weight_bits,)), fitted, predicted)


def from_memory(table: GemmTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Rows of those (k, n) shapes of which no row is faster than the data sheet's bandwidth allows, "row"."""
    cached = table.seconds < _bytes(table) / sheet.bandwidth_bytes_per_s
    shape = _shape(table)
    return ~np.isin(shape, shape[cached])


def baselines(table: GemmTable, sheet: DataSheet, train: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.float64]]:
    """What simpler models predict for every row: the bare roofline, and the same by one constant fitted to `train`."""
    flops = 2.0 * table.m * table.k * table.n
    roofline = np.maximum(flops / sheet.peak_flops_per_s, _bytes(table) / sheet.bandwidth_bytes_per_s)
    train = train & from_memory(table, sheet)
    factor = float(np.median(table.seconds[train] / roofline[train]))
    return {"roofline": roofline, "roofline by a constant": factor * roofline}


def _shape(table: GemmTable) -> npt.NDArray[np.float64]:
    """One number for each (k, n)."""
    return table.k * 2.0**24 + table.n


def _bytes(table: GemmTable) -> npt.NDArray[np.float64]:
    weights = table.n * table.k * (table.weight_bits / 8)
    return weights + 2.0 * table.m * table.k + 2.0 * table.m * table.n


def _unit(sheet: DataSheet, stacked: GemmCoefficients, widths: tuple[float, ...]) -> GpuGemm:
    return GpuGemm(
        peak_flops_per_s=sheet.peak_flops_per_s,
        bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s,
        multiprocessors=sheet.multiprocessors,
        coefficients=stacked,
        weight_widths=widths,
    )
