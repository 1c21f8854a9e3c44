"""What a small random checkpoint is described by."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint: its family, its shape, and how it is stored; `packed`: experts in MXFP4."""

    name: str
    model_type: str
    settings: dict[str, Any]
    seed: int
    embed_scale: float = 1.0
    vector_mean: float = 1.0
    dtype: str = "float32"
    max_shard_size: str = "1GB"
    packed: bool = False


_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


def sizes(*numbers: int, **others: Any) -> dict[str, Any]:
    """Settings by the usual keys: vocabulary, hidden and intermediate size, layers, heads, KV heads."""
    return dict(zip((*_SIZES, "num_attention_heads", "num_key_value_heads"), numbers, strict=True)) | others


def rope(kind: str, theta: float, **others: Any) -> dict[str, Any]:
    """Rotary settings."""
    return {"rope_type": kind, "rope_theta": theta, **others}
