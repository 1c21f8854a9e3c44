"""Fit a GPU's decoding attention (`hwmodels.compute.gpu_attention`) to a table of measured kernels.

Rows as language models decode: several query heads per key head, a context of 128 tokens or more, and none faster than the
data sheet's bandwidth allows, which a cache has served. Start values and bounds are the same for every GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import AttentionTable, DataSheet
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, fit
from hwmodels.compute.gpu_attention import GpuAttention, decode_attention_time

__all__ = ["ATTENTION_PARAMETERS", "AttentionFit", "decoding_rows", "fit_attention", "predict_attention"]

#: Of attention with 16-bit keys and values.
ATTENTION_PARAMETERS = (
    Parameter("launch_s", 8e-6, 1e-7, 1e-4),
    Parameter("depth_s", 1e-6, 1e-8, 1e-5),
    Parameter("memory_efficiency", 0.85, 0.2, 1.0),
    Parameter("ramp", 0.5, 1e-3, 20.0),
    Parameter("ramp_s", 3e-5, 1e-6, 1e-3),
)


@dataclasses.dataclass(frozen=True)
class AttentionFit:
    """A unit, its fit, and what it predicts for every row of the table, "row"."""

    unit: GpuAttention
    fit: Fit
    predicted_s: npt.NDArray[np.float64]


def predict_attention(sheet: DataSheet):
    """The model to fit, for `least_squares.fit`: conditions batch, context_tokens, num_kv_heads, head_dim."""

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        unit = GpuAttention(bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s, **values)
        return decode_attention_time(unit, **conditions)

    return predict


def decoding_rows(table: AttentionTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Rows that are fitted to, "row"; see the module's heading."""
    moved = 4.0 * table.batch * table.context_tokens * table.num_kv_heads * table.head_dim
    grouped = (table.num_heads > table.num_kv_heads) & (table.batch <= 128)
    return grouped & (table.context_tokens >= 128) & (table.seconds >= moved / sheet.bandwidth_bytes_per_s)


def fit_attention(
    table: AttentionTable, sheet: DataSheet, train: npt.ArrayLike | None = None, **options: Any
) -> AttentionFit:
    """Fit the five numbers to those rows of `train` (all unless given) that `decoding_rows` leaves.

    Raises:
        ValueError: as `least_squares.fit`.
    """
    train = np.ones(len(table.batch), bool) if train is None else np.asarray(train, bool)
    train = train & decoding_rows(table, sheet)
    rows = {name: getattr(table, name) for name in ("batch", "context_tokens", "num_kv_heads", "head_dim")}
    predict = predict_attention(sheet)
    groups = (table.batch * 2.0**20 + table.num_kv_heads)[train]
    chosen = {name: values[train] for name, values in rows.items()}
    fitted = fit(predict, ATTENTION_PARAMETERS, chosen, table.seconds[train], groups=groups, **options)
    with jax.enable_x64(True):
        predicted = np.asarray(predict(fitted.estimates, {name: jnp.asarray(v) for name, v in rows.items()}))
    unit = GpuAttention(bandwidth_bytes_per_s=sheet.bandwidth_bytes_per_s, **fitted.estimates)
    return AttentionFit(unit, fitted, predicted)
