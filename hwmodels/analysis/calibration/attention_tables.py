"""Tables of attention over all cached tokens (no sliding window): decoding, one new token per sequence, and prefill."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import KernelTableError, TableName, read_columns

__all__ = ["KV_FORMAT_BITS", "AttentionTable", "PrefillTable", "attention_table", "prefill_table"]

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
