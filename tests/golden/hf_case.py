"""What a small random checkpoint is described by."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint: its family, its shape, and how it is stored.

    Attributes:
        packed: experts in MXFP4, or all matrices of the layers in FP8 with a scale for each block; "stacked": all experts of a
            layer in two tensors, in the type they have; "transposed": such tensors with inputs before outputs.
        released: what config.json says beside or instead of what transformers writes, as releases with code of their own do.
        greedy: tokens that expected.npz has of greedy generation after the shorter prompt.
    """

    name: str
    model_type: str
    settings: dict[str, Any]
    seed: int
    embed_scale: float = 1.0
    vector_mean: float = 1.0
    dtype: str = "float32"
    max_shard_size: str = "1GB"
    packed: Literal["mxfp4", "fp8", "stacked", "transposed"] | None = None
    released: dict[str, Any] | None = None
    greedy: int = 0


_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")


def sizes(numbers: tuple[int, ...], **others: Any) -> dict[str, Any]:
    """Settings by the usual keys: vocabulary, hidden and intermediate size, layers, heads, KV heads."""
    return dict(zip((*_SIZES, "num_attention_heads", "num_key_value_heads"), numbers, strict=True)) | others


def rope(kind: str, theta: float, **others: Any) -> dict[str, Any]:
    """Rotary settings."""
    return {"rope_type": kind, "rope_theta": theta, **others}
