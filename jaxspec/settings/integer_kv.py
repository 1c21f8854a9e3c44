"""The form of a KV cache of integers, without the numerics behind it."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["IntegerKV"]


@dataclasses.dataclass(frozen=True)
class IntegerKV:
    """How keys and values are rounded before anything reads them (see `jaxspec.models.integer_kv`).

    Attributes:
        bits: of an integer, one for each element; the key and the value of each token and head have a scale and a smallest
            value of their own.
        smoothed_keys: keys are divided by scales of their channels first, which are parameters.
        rotated_keys: keys are rounded after a rotation of each head (see `jaxspec.models.rotated_rows`).
        queries: queries are rounded as keys are, when they are computed; no cache holds them.
        key_share: of the range between the smallest and the largest element of a key, or query, that integers span; of values
            they span all.
    """

    bits: Literal[4, 8]
    smoothed_keys: bool = False
    rotated_keys: bool = False
    queries: bool = False
    key_share: float = 1.0

    def __post_init__(self) -> None:
        if self.queries and self.smoothed_keys:
            raise ValueError(
                "queries and smoothed_keys are both given; scales of smoothed keys belong to queries too, which are rounded "
                "without them: give one of the two"
            )
