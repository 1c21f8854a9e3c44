"""Changes to the bytes of a container, checksums left as they were; what damage in storage or transfer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxspec.formats.container.layout import PRELUDE_BYTES

__all__ = ["CHANGES", "Random", "flip", "mutated", "near", "overwrite", "some"]

Random = np.random.Generator

#: Numbers that are rarely thought of.
ODD_NUMBERS = [0, -1, 1, 7, 255, 256, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 61, 1 << 63, 1 << 64, 10**400]

#: Changes of a case: mostly one, since the first that is noticed hides the others.
CHANGES = [1, 1, 1, 2, 3]


def some(rng: Random, choices: Any) -> Any:
    """One of these."""
    return choices[int(rng.integers(len(choices)))]


def near(rng: Random, number: int) -> int:
    """A number beside this one, far from it, or odd."""
    kind = rng.integers(4)
    if kind == 0:
        return number + int(rng.integers(-3, 4))
    if kind == 1:
        return number * int(rng.integers(2, 70)) if rng.integers(2) else number // int(rng.integers(2, 9))
    return int(rng.integers(0, 1 << 14)) if kind == 2 else some(rng, ODD_NUMBERS)


def _place(rng: Random, content: bytearray) -> int:
    """A place; the prelude more often than its length deserves."""
    return int(rng.integers(min(PRELUDE_BYTES, len(content)) if rng.integers(16) == 0 else len(content)))


def flip(rng: Random, content: bytearray) -> None:
    """One to eight bits."""
    for _ in range(rng.integers(1, 9)):
        content[_place(rng, content)] ^= 1 << int(rng.integers(8))


def overwrite(rng: Random, content: bytearray) -> None:
    """A run of bytes by zeros, ones, noise, or another run."""
    start, length = _place(rng, content), int(rng.integers(1, 200))
    length = min(length, len(content) - start)
    kind = rng.integers(4)
    source = int(rng.integers(len(content) - length + 1))
    runs = bytes(length), b"\xff" * length, rng.bytes(length), bytes(content[source : source + length])
    content[start : start + length] = runs[kind]


def _truncate(rng: Random, content: bytearray) -> None:
    del content[_place(rng, content) if rng.integers(2) else len(content) - int(rng.integers(1, 70)) :]


def _extend(rng: Random, content: bytearray) -> None:
    more = rng.bytes(int(rng.integers(1, 300)))
    content += more if rng.integers(2) else bytes(len(more))


def _insert_or_delete(rng: Random, content: bytearray) -> None:
    start, length = _place(rng, content), int(rng.integers(1, 70))
    content[start : start + int(rng.integers(2)) * length] = rng.bytes(int(rng.integers(2)) * length)


def _swap_blocks(rng: Random, content: bytearray) -> None:
    """Two pieces of 64 bytes, as sections are aligned."""
    blocks = len(content) // 64
    length = 64 * int(rng.integers(1, 9))
    first, second = 64 * int(rng.integers(blocks)), 64 * int(rng.integers(blocks))
    one, other = content[first : first + length], content[second : second + length]
    if len(one) == len(other) == length and abs(first - second) >= length:
        content[first : first + length], content[second : second + length] = other, one


def _prelude_number(rng: Random, content: bytearray) -> None:
    place, width = some(rng, [(8, 4), (12, 4), (16, 8), (24, 8)])
    old = int.from_bytes(content[place : place + width], "little")
    content[place : place + width] = (near(rng, old) % (1 << 8 * width)).to_bytes(width, "little")


_OF_BYTES: list[Callable[[Random, bytearray], None]] = [
    *[flip, overwrite, _swap_blocks] * 3,
    _truncate,
    _extend,
    _insert_or_delete,
    _prelude_number,
]


def mutated(content: bytes, rng: Random) -> tuple[bytes, str]:
    """The bytes with one to three changes, and what was done."""
    changed, names = bytearray(content), []
    for _ in range(some(rng, CHANGES)):
        change = some(rng, _OF_BYTES)
        if len(changed) > PRELUDE_BYTES:
            change(rng, changed)
            names.append(change.__name__.strip("_"))
    return bytes(changed), ", ".join(names)
