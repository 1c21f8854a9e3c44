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
    """

    bits: Literal[4, 8]
    smoothed_keys: bool = False
