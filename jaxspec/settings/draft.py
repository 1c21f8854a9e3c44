"""Limits and defaults of the knobs of a compressed draft, stated once for configurations and for the library."""

from __future__ import annotations

from typing import Any

from jaxspec.settings.fields import setting

__all__ = ["DEFAULT_KNOBS", "KNOB_RANGES", "MAX_DRAFT_LENGTH", "knob"]

#: Longest draft that tuning considers.
MAX_DRAFT_LENGTH = 8

#: Lowest and highest value of each knob. A draft without any weight of a matrix has no use, so pruning ends at 95 %.
KNOB_RANGES = {
    "weight_prune": (0.0, 0.95),
    "weight_cut_bits": (0.0, 7.0),
    "kv_prune": (0.0, 0.95),
    "kv_cut_bits": (0.0, 7.0),
}

#: Cassandra's "40 %/4 bits" (VI-A): weights 40 % pruned and 4 bits cut, KV cache not pruned and 4 bits cut.
DEFAULT_KNOBS = {"weight_prune": 0.4, "weight_cut_bits": 4.0, "kv_prune": 0.0, "kv_cut_bits": 4.0}


def knob(name: str, help: str) -> Any:  # noqa: A002
    """The field of a knob, the same everywhere."""
    low, high = KNOB_RANGES[name]
    return setting(DEFAULT_KNOBS[name], help, low=low, high=high)
