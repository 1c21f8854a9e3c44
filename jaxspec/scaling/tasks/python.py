"""Python to be completed: the head of a function, whose body a network writes."""

from __future__ import annotations

import re

import numpy as np

__all__ = ["function_of", "function_prompts"]

#: The head of a function at the beginning of a line, over as many lines as its brackets take, and its line's end.
_HEAD = re.compile(rb"^def [A-Za-z_]\w*\([^()\n]*(?:\n[^()\n]*)*\)(?: *->[^:\n]*)?:\n", re.MULTILINE)

#: Where a function at the beginning of a line has ended: something follows at the beginning of a line.
_AFTER = re.compile(rb"\n(?=[^\s#)\]}])")


def function_prompts(text: bytes, count: int, *, context: int = 256, seed: int = 0) -> list[bytes]:
    """Heads of functions with what stands before them, evenly drawn from a text without repetition.

    Args:
        text: Python, as UTF-8. context: bytes before a head.
    Returns:
        fewer than `count` where the text has fewer functions.
    """
    heads = list(_HEAD.finditer(text))
    chosen = np.sort(np.random.default_rng([seed, len(heads)]).permutation(len(heads))[:count])
    return [text[max(0, heads[i].start() - context) : heads[i].end()] for i in chosen]


def function_of(prompt: bytes, completion: bytes) -> bytes | None:
    """The whole function: its head and the completion up to where something else begins; None where it has no end."""
    head = prompt[[match.start() for match in _HEAD.finditer(prompt)][-1] :]
    match = _AFTER.search(b"\n" + completion)
    # What begins at once is no body.
    if match is None or match.start() == 0:
        return None
    return head + completion[: match.start()]
