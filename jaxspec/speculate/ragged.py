"""Texts of unequal length in one array: each begins at place 0, zeros follow its end; on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Num

__all__ = ["ends_of", "flush_right", "generated_tokens", "padded"]


def padded(texts: Sequence[Int[np.ndarray, " _"]], *, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Texts in one array, and their lengths.

    Args:
        least: places of the array at least.
    Returns:
        int32 "text place", and int32 " text".
    """
    lengths = np.array([len(text) for text in texts], np.int32)
    rows = np.zeros((len(texts), max(least, int(lengths.max()))), np.int32)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return rows, lengths


def flush_right(
    texts: Int[np.ndarray, "text place"], lengths: Int[np.ndarray, " text"]
) -> tuple[Int[np.ndarray, "text place"], Int[np.ndarray, " text"]]:
    """Texts moved so that their ends, in place of their beginnings, are in one column; and the number of zeros before each."""
    before = texts.shape[1] - lengths
    place = np.arange(texts.shape[1])[None, :] - before[:, None]
    moved = np.take_along_axis(texts, np.maximum(place, 0), axis=1)
    return np.where(place >= 0, moved, 0).astype(np.int32), before.astype(np.int32)


def generated_tokens(
    tokens: Num[np.ndarray, "text place"],
    lengths: Int[np.ndarray, " text"],
    generated: Int[np.ndarray, " text"],
    count: int,
) -> Num[np.ndarray, "text count"]:
    """The first `count` tokens after each prompt, or what else there is one of for each token; −1 behind the last generated.

    Args:
        tokens: prompts and what follows them. lengths: of the prompts.
    """
    place = np.arange(count)[None, :]
    taken = np.take_along_axis(tokens, np.minimum(lengths[:, None] + place, tokens.shape[1] - 1), axis=1)
    return np.where(place < generated[:, None], taken, -1)


def ends_of(generated: Int[np.ndarray, "text token"], stop: Sequence[int]) -> Int[np.ndarray, " text"]:
    """Tokens of each text up to its first stop token, that one included; one more than there is room for where it has none."""
    hit = np.isin(generated, np.asarray(stop, np.int32))
    return np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, generated.shape[1] + 1).astype(np.int32)
