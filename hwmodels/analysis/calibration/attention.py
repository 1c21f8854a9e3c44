"""Fit a GPU's attention (`hwmodels.compute.gpu_attention`, `gpu_prefill`) to tables of measured kernels.

Rows as language models run: heads of 64 and 128 elements, at most 16 query heads per key head; decoding with several query
heads per key head and contexts of 128 tokens or more; prompts of 64 tokens or more. Start values and bounds are the same for
every GPU.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import DataSheet, KernelTableError, TableName, read_columns
from hwmodels.analysis.calibration.least_squares import Fit, Parameter, UnitFit, fit, parameters_of, predicted_rows
from hwmodels.analysis.calibration.report import some_of
from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill, decode_attention_time, prefill_attention_time

__all__ = [
    "KV_FORMAT_BITS",
    "AttentionTable",
    "PrefillTable",
    "attention_conditions",
    "attention_table",
    "decoding_rows",
    "fit_attention",
    "fit_prefill",
    "predict_attention",
    "predict_prefill",
    "prefill_conditions",
    "prefill_rows",
    "prefill_table",
]

# Tables of attention over all cached tokens (no sliding window): decoding, one new token per sequence, and prefill.

#: Formats of keys and values, as the tables name them -> bits per element.
KV_FORMAT_BITS = {"bfloat16": 16.0, "fp8": 8.0}

_NAMES = ("batch_size", "num_heads", "num_key_value_heads", "head_dim", "isl", "step", "latency")
_TEXTS = ("attn_dtype", "kernel_source")

#: Heads that the kernel which an engine takes as a rule is told by.
_USUAL = {"num_heads": 32, "num_key_value_heads": 8, "head_dim": 128}


@dataclasses.dataclass(frozen=True)
class AttentionTable:
    """Times of decoding attention, one new token per sequence, "row"."""

    batch: npt.NDArray[np.float64]
    num_heads: npt.NDArray[np.float64]
    num_kv_heads: npt.NDArray[np.float64]
    head_dim: npt.NDArray[np.float64]
    context_tokens: npt.NDArray[np.float64]  # the new token included
    seconds: npt.NDArray[np.float64]
    kv_bits: float = 16.0


@dataclasses.dataclass(frozen=True)
class PrefillTable:
    """Times of attention over prompts from an empty cache, in 16 bits, "row"."""

    batch: npt.NDArray[np.float64]
    num_heads: npt.NDArray[np.float64]
    num_kv_heads: npt.NDArray[np.float64]
    head_dim: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]


def attention_table(table: TableName, kv_format: str = "bfloat16", *, root: str | Path | None = None) -> AttentionTable:
    """Decoding attention of the engine's usual kernel.

    Args:
        table: of kind "attention".
        kv_format: of `KV_FORMAT_BITS`.
        root: as of `list_tables`.
    Raises:
        KernelTableError: the table cannot be read or holds no such rows.
    """
    columns = _usual_rows(table, kv_format, root)
    batch, heads, kv_heads, head_dim, new, cached, milliseconds = (columns[name] for name in _NAMES)
    bits = KV_FORMAT_BITS[kv_format]
    return AttentionTable(batch, heads, kv_heads, head_dim, cached + new, milliseconds * 1e-3, bits)


def prefill_table(table: TableName, *, root: str | Path | None = None) -> PrefillTable:
    """Prefill attention of the engine's usual kernel, in 16 bits.

    Args:
        table: of kind "prefill".
        root: as of `list_tables`.
    Raises:
        KernelTableError: the table cannot be read or holds no such rows.
    """
    columns = _usual_rows(table, "bfloat16", root)
    batch, heads, kv_heads, head_dim, tokens, _, milliseconds = (columns[name] for name in _NAMES)
    return PrefillTable(batch, heads, kv_heads, head_dim, tokens, milliseconds * 1e-3)


def _usual_rows(table: TableName, kv_format: str, root: str | Path | None) -> dict[str, npt.NDArray[np.float64]]:
    columns = read_columns(table, [*_NAMES, "kv_cache_dtype"], root, optional=["window_size", *_TEXTS])
    used = (columns["kv_cache_dtype"] == kv_format) & (columns["latency"] > 0)
    if "attn_dtype" in columns:
        used &= columns["attn_dtype"] == "bfloat16"
    if "window_size" in columns:
        used &= columns["window_size"] == 0
    if not used.any():
        raise KernelTableError(f"{table} holds no attention over {kv_format} keys and values; choose another engine")
    if "kernel_source" in columns:
        usual = used & np.logical_and.reduce([columns[name] == size for name, size in _USUAL.items()])
        names, counts = np.unique(columns["kernel_source"][usual if usual.any() else used], return_counts=True)
        used &= columns["kernel_source"] == names[np.argmax(counts)]
    return {name: columns[name][used].astype(np.float64) for name in _NAMES}


#: Rows that one fit sees; more change no number by its standard error.
FITTED_ROWS = 1000

_SHEET = ("bandwidth_bytes_per_s", "multiprocessors")
_UNIT = tuple(GpuAttention.__dataclass_fields__)
_DECODING = ("batch", "context_tokens", "num_kv_heads", "head_dim")
_PREFILL = ("batch", "tokens", "num_heads", "num_kv_heads", "head_dim")
_HEAD_SIZES = (64, 128)
_MOST_QUERIES_PER_KEY = 16


@functools.cache
def predict_attention(kv_bits: float = 16.0):
    """The model to fit, for `least_squares.fit`: conditions as of `attention_conditions`: GPUs share a program."""

    def predict(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
        unit = GpuAttention(**{name: conditions[name] for name in _SHEET}, **values)
        return decode_attention_time(unit, kv_bits=kv_bits, **{name: conditions[name] for name in _DECODING})

    return predict


def predict_prefill(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> Any:
    """The model to fit, for `least_squares.fit`: conditions as `prefill_conditions` has them."""
    decoding = GpuAttention(**{name: conditions[name] for name in _UNIT})
    shape = {name: conditions[name] for name in _PREFILL}
    return prefill_attention_time(
        GpuPrefill(**values), decoding, peak_flops_per_s=conditions["peak_flops_per_s"], **shape
    )


def attention_conditions(table: AttentionTable, sheet: DataSheet) -> dict[str, npt.NDArray[np.float64]]:
    """What a decoding time depends on, "row": the shape and the data sheet."""
    sheets = {name: np.full(len(table.batch), getattr(sheet, name)) for name in _SHEET}
    return {name: getattr(table, name) for name in _DECODING} | sheets


def prefill_conditions(
    table: PrefillTable, sheet: DataSheet, decoding: GpuAttention
) -> dict[str, npt.NDArray[np.float64]]:
    """What a prefill time depends on, "row": the shape, the peak, and the engine's decoding."""
    same = {name: float(getattr(decoding, name)) for name in _UNIT} | {"peak_flops_per_s": sheet.peak_flops_per_s}
    rows = {name: np.full(len(table.batch), value) for name, value in same.items()}
    return {name: getattr(table, name) for name in _PREFILL} | rows


def decoding_rows(table: AttentionTable) -> npt.NDArray[np.bool_]:
    """Rows that are fitted to, "row"; see the module's heading."""
    grouped = (table.num_heads > table.num_kv_heads) & (table.batch <= 512)
    return _usual_heads(table) & grouped & (table.context_tokens >= 128) & (table.context_tokens <= 65536)


def prefill_rows(table: PrefillTable) -> npt.NDArray[np.bool_]:
    """Rows that are fitted to, "row"; see the module's heading."""
    return _usual_heads(table) & (table.tokens >= 64)


def _usual_heads(table: AttentionTable | PrefillTable) -> npt.NDArray[np.bool_]:
    few = table.num_heads <= _MOST_QUERIES_PER_KEY * table.num_kv_heads
    return few & np.isin(table.head_dim, _HEAD_SIZES)


def fit_attention(
    table: AttentionTable, sheet: DataSheet, train: npt.ArrayLike | None = None, *, blocks: bool = False, **options: Any
) -> UnitFit[GpuAttention]:
    """Fit the numbers of decoding to those rows of `train` (all unless given) that `decoding_rows` leaves.

    Args:
        blocks: fit the two numbers of blocks too; else a multiprocessor is never what limits.
    Raises:
        ValueError: as `least_squares.fit`.
    """
    rows, modelled = attention_conditions(table, sheet), decoding_rows(table)
    parameters = parameters_of("decoding") + (parameters_of("blocks") if blocks else ())
    fitted, predicted = _fitted(predict_attention(table.kv_bits), parameters, table, rows, modelled, train, options)
    unit = GpuAttention(**{name: getattr(sheet, name) for name in _SHEET}, **fitted.estimates)
    return UnitFit(unit, fitted, predicted)


def fit_prefill(
    table: PrefillTable, sheet: DataSheet, decoding: GpuAttention, train: npt.ArrayLike | None = None, **options: Any
) -> UnitFit[GpuPrefill]:
    """Fit the six numbers of prefill to those rows of `train` (all unless given) that `prefill_rows` leaves.

    Raises:
        ValueError: as `least_squares.fit`.
    """
    rows, modelled = prefill_conditions(table, sheet, decoding), prefill_rows(table)
    fitted, predicted = _fitted(predict_prefill, parameters_of("prefill"), table, rows, modelled, train, options)
    return UnitFit(GpuPrefill(**fitted.estimates), fitted, predicted)


def _fitted(
    predict: Callable[..., Any],
    parameters: tuple[Parameter, ...],
    table: AttentionTable | PrefillTable,
    rows: Mapping[str, npt.NDArray[np.float64]],
    modelled: npt.NDArray[np.bool_],
    train: npt.ArrayLike | None,
    options: Mapping[str, Any],
) -> tuple[Fit, npt.NDArray[np.float64]]:
    chosen = some_of(modelled if train is None else modelled & np.asarray(train, bool), FITTED_ROWS)
    groups = (table.batch * 2.0**20 + table.num_kv_heads)[chosen]
    used = {name: values[chosen] for name, values in rows.items()}
    fitted = fit(predict, parameters, used, table.seconds[chosen], groups=groups, **options)
    predicted = predicted_rows(predict, fitted.estimates, rows)
    return fitted, predicted
