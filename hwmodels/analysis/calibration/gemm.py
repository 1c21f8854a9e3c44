"""Fit a GPU's matrix products (`hwmodels.compute.gpu`) to a table of measured ones: the same procedure for every GPU.

Start values, bounds and loss are fixed here and nowhere chosen by GPU. A time shorter than the data sheet's bandwidth allows
shows that the weights came from a cache, as they do not within a model. All rows of such a shape are left out, and counted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS, DataSheet, GemmTable
from hwmodels.analysis.calibration.least_squares import Parameter, UnitFit, fit, parameters_of, predicted_rows
from hwmodels.compute.gpu import GpuGemm, gemm_time
from hwmodels.compute.gpu_experts import GemmCoefficients, stack_widths

__all__ = [
    "PROLOGUE_ELEMENTS",
    "baselines",
    "coefficients",
    "fit_gemm",
    "from_memory",
    "gemm_conditions",
    "gemm_parameters",
    "predict_gemm",
]

#: Between what A100, H100, H200, L40S and B200 tables give (80 to 270) where it is fitted; none of them is sensitive to it.
PROLOGUE_ELEMENTS = 200.0

_SHEET = tuple(field.name for field in dataclasses.fields(DataSheet))


def gemm_parameters(
    weight_format: str, dispatched_rows: float = 0.0, *, without_graph: bool = False, cache_bytes: float = 0.0
) -> tuple[Parameter, ...]:
    """What is fitted for a format: weights that are unpacked to 16 bits take other kernels than what is multiplied as it is.

    Args:
        dispatched_rows, cache_bytes: as of `predict_gemm`.
        without_graph: as of `fit_gemm`.
    """
    form = KERNEL_FORMATS[weight_format]
    own = "packed" if form.weight_bits <= 8 else "products"
    kernels = "dispatched" if dispatched_rows else "quantized" if form.arithmetic_rate > 1.0 else own
    more = [name for name, has in (("host", without_graph), ("rereads", cache_bytes)) if has]
    return tuple(parameter for name in (kernels, *more) for parameter in parameters_of(name))


def coefficients(values: Mapping[str, Any], weight_format: str, cache_bytes: float = 0.0) -> GemmCoefficients:
    """Coefficients from fitted values by name; those that the format does not have are 0, the prologue as it is fixed.

    Args:
        cache_bytes: as of `predict_gemm`.
    """
    form = KERNEL_FORMATS[weight_format]
    own = {"activation_bytes": form.activation_bytes, "arithmetic_rate": form.arithmetic_rate}
    own |= {"cache_bytes": cache_bytes}
    given = {"prologue_elements": PROLOGUE_ELEMENTS} | own | dict(values)
    return GemmCoefficients(
        **{field.name: given.get(field.name, 0.0) for field in dataclasses.fields(GemmCoefficients)}
    )


@functools.cache
def predict_gemm(weight_format: str, dispatched_rows: float = 0.0, cache_bytes: float = 0.0):
    """The model to fit, for `least_squares.fit`: conditions as `gemm_conditions` has them, so that GPUs share one program.

    Args:
        weight_format: of every product, of `KERNEL_FORMATS`.
        dispatched_rows: static, the most rows of a tile as `GpuGemm` has them; 0 where a library chooses.
        cache_bytes: static, of the GPU where operands beyond its cache are read again; 0 where they are not.
    """
    weight_bits = KERNEL_FORMATS[weight_format].weight_bits

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        stacked = stack_widths([coefficients(values, weight_format, cache_bytes)])
        unit = _unit(DataSheet(**{name: conditions[name] for name in _SHEET}), stacked, (weight_bits,), dispatched_rows)
        return gemm_time(unit, conditions["m"], conditions["k"], conditions["n"], weight_bits=weight_bits)

    return predict


def gemm_conditions(table: GemmTable, sheet: DataSheet) -> dict[str, npt.NDArray[np.float64]]:
    """What a time depends on, "row": m, k, n and the data sheet."""
    sheets = {name: np.full(len(table.m), getattr(sheet, name), np.float64) for name in _SHEET}
    return {"m": table.m, "k": table.k, "n": table.n} | sheets


def fit_gemm(
    table: GemmTable,
    sheet: DataSheet,
    train: npt.ArrayLike | None = None,
    *,
    dispatched_rows: float = 0.0,
    without_graph: bool = False,
    cache_bytes: float = 0.0,
    **options: Any,
) -> UnitFit[GpuGemm]:
    """Fit the numbers of a table's format: see `gemm_parameters`.

    Args:
        table: measured products.
        sheet: the GPU's data sheet.
        train: "row", true where a row is fitted to; all rows unless given.
        dispatched_rows, cache_bytes: as of `predict_gemm`.
        without_graph: the table was measured without a CUDA graph, so that the host's time is in it.
        options: of `least_squares.fit`.
    Raises:
        ValueError: as `least_squares.fit`.
    """
    train = np.ones(len(table.m), bool) if train is None else np.asarray(train, bool)
    train = train & from_memory(table, sheet)
    predict, rows = predict_gemm(table.weight_format, dispatched_rows, cache_bytes), gemm_conditions(table, sheet)
    fitted = fit(
        predict,
        gemm_parameters(table.weight_format, dispatched_rows, without_graph=without_graph, cache_bytes=cache_bytes),
        {name: values[train] for name, values in rows.items()},
        table.seconds[train],
        groups=_shape(table)[train],
        **options,
    )
    predicted = predicted_rows(predict, fitted.estimates, rows)
    stacked = jax.tree.map(
        lambda leaf: np.asarray([leaf], np.float32), coefficients(fitted.estimates, table.weight_format, cache_bytes)
    )
    return UnitFit(_unit(sheet, stacked, (table.weight_bits,), dispatched_rows), fitted, predicted)


def from_memory(table: GemmTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Rows of those (k, n) shapes of which no row is faster than the data sheet's bandwidth allows, "row"."""
    cached = table.seconds < _bytes(table) / sheet.bandwidth_bytes_per_s
    shape = _shape(table)
    return ~np.isin(shape, shape[cached])


def baselines(table: GemmTable, sheet: DataSheet, train: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.float64]]:
    """What simpler models predict for every row: the bare roofline, and the same by one constant fitted to `train`."""
    flops = 2.0 * table.m * table.k * table.n
    rate = KERNEL_FORMATS[table.weight_format].arithmetic_rate
    roofline = np.maximum(flops / (rate * sheet.peak_flops_per_s), _bytes(table) / sheet.bandwidth_bytes_per_s)
    train = train & from_memory(table, sheet)
    factor = float(np.median(table.seconds[train] / roofline[train]))
    return {"roofline": roofline, "roofline by a constant": factor * roofline}


def _shape(table: GemmTable) -> npt.NDArray[np.float64]:
    """One number for each (k, n)."""
    return table.k * 2.0**24 + table.n


def _bytes(table: GemmTable) -> npt.NDArray[np.float64]:
    weights = table.n * table.k * (table.weight_bits / 8)
    return weights + 2.0 * table.m * table.k + 2.0 * table.m * table.n


def _unit(sheet: DataSheet, stacked: GemmCoefficients, widths: tuple[float, ...], dispatched_rows: float) -> GpuGemm:
    return GpuGemm(
        peak_flops_per_s=sheet.peak_flops_per_s,
        bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s,
        multiprocessors=sheet.multiprocessors,
        coefficients=stacked,
        weight_widths=widths,
        dispatched_rows=((widths[0], dispatched_rows),) if dispatched_rows else (),
    )
