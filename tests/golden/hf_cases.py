"""The small random checkpoints that the loader is tested with, as `hf_cases.json` lists them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

__all__ = ["CASES", "Case"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint: its family, its shape, and how it is stored.

    Attributes:
        packed: experts in MXFP4, or all matrices of the layers in FP8 with a scale for each block; "stacked": all experts of a
            layer in two tensors, in the type they have; "transposed": such tensors with inputs before outputs.
        released: what config.json says beside or instead of what transformers writes, as releases with code of their own do.
        greedy: tokens that expected.npz has of greedy generation after the shorter prompt.
        about: what is special about it.
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
    about: str = ""


_LISTED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

#: All cases.
CASES = tuple(Case(name=name, **fields) for name, fields in _LISTED.items())
