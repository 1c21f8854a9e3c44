"""Fit what is not a product: attention, look-ups, sampling."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwmodels.analysis.calibration.least_squares import Parameter
from hwmodels.numerics.smoothing import smooth_maximum
from jaxspec.studies.calibrate.fitted import PartFit, simple_part, within_reach
from jaxspec.studies.calibrate.table import Row

__all__ = ["ELEMENT_BYTES", "fit_attention", "fit_lookups", "fit_sampling"]

#: Keys and values are held in float32.
ELEMENT_BYTES = 4.0

_ATTENTION = (
    Parameter("launch_s", 1e-5, 1e-8, 1e-2),
    Parameter("pair_s", 1e-7, 1e-11, 1e-3),
    Parameter("slot_s", 1e-9, 1e-12, 1e-5),
    Parameter("score_s", 1e-9, 1e-14, 1e-5),
    Parameter("flops_per_s", 5e10, 1e7, 1e16),
    Parameter("bytes_per_s", 2e10, 1e7, 1e14),
)
_LOOKUP = (Parameter("base_s", 1e-6, 1e-9, 1e-1), Parameter("row_s", 1e-7, 1e-11, 1e-2))
_SAMPLING = (
    Parameter("base_s", 1e-6, 1e-9, 1e-1),
    Parameter("sample_s", 1e-6, 1e-10, 1e-1),
    Parameter("logit_s", 1e-8, 1e-14, 1e-3),
)


@functools.cache
def _attention_form(overlap: float) -> Any:
    def predict(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
        visible = c["context_tokens"] + (c["tokens"] + 1.0) / 2.0
        scores = c["batch"] * c["heads"] * c["tokens"] * visible
        flops = 4.0 * c["head_dim"] * scores
        cached = 2.0 * c["batch"] * c["context_tokens"] * c["kv_heads"] * c["head_dim"] * ELEMENT_BYTES
        times = jnp.stack([v["score_s"] * scores + flops / v["flops_per_s"], cached / v["bytes_per_s"]], axis=-1)
        along = v["pair_s"] * c["batch"] * c["kv_heads"] + v["slot_s"] * visible
        return v["launch_s"] + along + smooth_maximum(times, overlap)

    return predict


def fit_attention(table: Sequence[Row], overlap: float) -> PartFit | None:
    """Attention; a context with its heads is held out as a whole. None without enough rows."""
    places = _places(table, "attention")
    if len(places) <= len(_ATTENTION):
        return None
    groups = [
        f"{table[i].heads:g}-{table[i].kv_heads:g}-{table[i].head_dim:g}-{table[i].context_tokens:g}" for i in places
    ]
    names = ("batch", "tokens", "context_tokens", "heads", "kv_heads", "head_dim")
    rows = [table[i] for i in places]
    flops = [4 * r.head_dim * r.batch * r.heads * r.tokens * (r.context_tokens + 1) / r.seconds for r in rows]
    moved = [2 * r.batch * r.context_tokens * r.kv_heads * r.head_dim * ELEMENT_BYTES / r.seconds for r in rows]
    parameters = within_reach(_ATTENTION, flops_per_s=max(flops), bytes_per_s=max(*moved, 1.0))
    return _fitted("attention", _attention_form(overlap), parameters, table, places, names, groups)


def _lookup_form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
    return v["base_s"] + v["row_s"] * c["rows"]


def fit_lookups(table: Sequence[Row]) -> PartFit | None:
    """Look-ups of a token's row. None without enough rows."""
    places = _places(table, "lookup")
    if len(places) <= len(_LOOKUP):
        return None
    groups = [f"{table[i].rows:g}" for i in places]
    return _fitted("lookup", _lookup_form, _LOOKUP, table, places, ("rows",), groups)


def _sampling_form(v: Mapping[str, Any], c: Mapping[str, Any]) -> Any:
    return v["base_s"] + c["rows"] * (v["sample_s"] + v["logit_s"] * c["vocab_size"])


def fit_sampling(table: Sequence[Row]) -> PartFit | None:
    """Tokens chosen out of rows of logits. None without enough rows."""
    places = _places(table, "sampling")
    if len(places) <= len(_SAMPLING):
        return None
    groups = [f"{table[i].rows:g}-{table[i].vocab_size:g}" for i in places]
    return _fitted("sampling", _sampling_form, _SAMPLING, table, places, ("rows", "vocab_size"), groups)


def _places(table: Sequence[Row], part: str) -> np.ndarray:
    return np.array([place for place, row in enumerate(table) if row.part == part], np.int64)


def _fitted(
    part: str,
    form: Any,
    parameters: Sequence[Parameter],
    table: Sequence[Row],
    places: np.ndarray,
    names: Sequence[str],
    groups: Sequence[str],
) -> PartFit:
    conditions = {name: np.array([float(getattr(table[i], name)) for i in places]) for name in names}
    seconds = np.array([table[i].seconds for i in places])
    return simple_part(part, form, parameters, conditions, seconds, groups, places)
