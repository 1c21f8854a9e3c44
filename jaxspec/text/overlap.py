"""Prompts that stand in a text: acceptance on text that drafts know is not that on new text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt64

__all__ = ["num_within"]

#: Tokens without which a prompt may stand in any text.
_LEAST_SEARCHED = 8

#: Of a polynomial modulo 2^64; odd, so that no token is lost.
_MULTIPLIER = 0x9E3779B97F4A7C15


def num_within(prompts: Sequence[Int[np.ndarray, " token"]], text: Int[np.ndarray, " token"]) -> int:
    """How many prompts stand in a text, word for word.

    The first and the last token are not compared, as they may be other ones next to other text. Prompts that are short
    without them are not counted.
    """
    by_size: dict[int, list[np.ndarray]] = {}
    for prompt in (prompt[1:-1] for prompt in prompts if len(prompt) >= _LEAST_SEARCHED + 2):
        if len(prompt) <= len(text):
            by_size.setdefault(1 << (len(prompt).bit_length() - 1), []).append(prompt)
    return sum(_num_beginning(some, text, size) for size, some in by_size.items())


def _num_beginning(prompts: Sequence[Int[np.ndarray, " token"]], text: Int[np.ndarray, " token"], size: int) -> int:
    """How many prompts stand in a text as a whole; all have so many tokens or more."""
    wanted = np.array([_keys(prompt[:size], size)[0] for prompt in prompts])
    found = _keys(text, size)
    (places,) = np.nonzero(np.isin(found, wanted))
    places = places[np.argsort(found[places], kind="stable")]
    begin, end = (np.searchsorted(found[places], wanted, side) for side in ("left", "right"))
    return sum(
        _stands_at(prompt, text, places[first:last]) for prompt, first, last in zip(prompts, begin, end, strict=True)
    )


def _keys(tokens: Int[np.ndarray, " token"], size: int) -> UInt64[np.ndarray, " place"]:
    """A number for each place that has so many tokens (a power of two) from it on: equal for equal tokens, seldom otherwise."""
    found, width, power = tokens.astype(np.uint64), 1, _MULTIPLIER
    while width < size:
        found = found[:-width] * np.uint64(power) + found[width:]
        width, power = 2 * width, power * power % 2**64
    return found


def _stands_at(
    prompt: Int[np.ndarray, " token"], text: Int[np.ndarray, " place"], places: Int[np.ndarray, " some"]
) -> bool:
    """Whether a prompt stands at one of these places, of which there may be many in a text that repeats itself."""
    places = places[places + len(prompt) <= len(text)]
    for offset, token in enumerate(prompt):
        if len(places) <= 1:
            break
        places = places[text[places + offset] == token]
    return any(np.array_equal(text[place : place + len(prompt)], prompt) for place in places[:1])
