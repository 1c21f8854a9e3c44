"""Arithmetic in steps: each step works out the first two numbers of what is left, and writes what is left then.

    47+38-9+20;  85-9+20;76+20;96.

The problem ends with its semicolon, a step with one, the last step with a full stop. A text is right where it ends with the
value; a step is right where what it writes follows from what was left before it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

__all__ = ["END", "STEP_END", "Problem", "answer_of", "problems", "solution"]

#: Ends a step.
STEP_END = b";"

#: Ends an answer.
END = b"."

#: Values on the way, and numbers of a problem, lie below these.
_MOST_VALUE, _MOST_NUMBER = 1000, 100

_WHOLE = re.compile(rb"(?:\d{1,3}(?:[+-]\d{1,3})*;)*\d{1,3}\.")


class Problem(NamedTuple):
    """A sum.

    Attributes:
        text: what a network is given, its semicolon included.
        value: the right answer.
    """

    text: bytes
    value: int


def problems(count: int, *, seed: int, terms: tuple[int, int] = (3, 6)) -> list[Problem]:
    """Random problems: each seed draws its own, and the n-th does not depend on how many are drawn.

    Args:
        terms: fewest and most numbers of a problem.
    Raises:
        ValueError: a count below 0 or terms that are no range of 2 or more.
    """
    fewest, most = terms
    if count < 0 or not 2 <= fewest <= most:
        raise ValueError(
            f"{count} problems of {fewest} to {most} terms came; give a count of 0 or more, and 2 or more terms"
        )
    return [_drawn(np.random.default_rng([seed, number]), fewest, most) for number in range(count)]


def _drawn(rng: np.random.Generator, fewest: int, most: int) -> Problem:
    value = int(rng.integers(1, _MOST_NUMBER))
    text = str(value)
    for _ in range(int(rng.integers(fewest, most + 1)) - 1):
        number, less = int(rng.integers(1, _MOST_NUMBER)), bool(rng.random() < 0.5)
        less = (less and number <= value) or value + number >= _MOST_VALUE
        value, text = (value - number, f"{text}-{number}") if less else (value + number, f"{text}+{number}")
    return Problem(text.encode() + STEP_END, value)


def solution(problem: Problem) -> bytes:
    """The right steps to the end."""
    left, steps = problem.text[:-1], []
    while (shorter := _one_step(left)) is not None:
        steps.append(shorter)
        left = shorter
    return STEP_END.join(steps) + END


def _one_step(left: bytes) -> bytes | None:
    """What is left once the first two numbers are one; None where there is one number."""
    match = re.match(rb"(\d+)([+-])(\d+)", left)
    if match is None:
        return None
    first, sign, second = int(match[1]), match[2], int(match[3])
    return str(first + second if sign == b"+" else first - second).encode() + left[match.end() :]


def answer_of(completion: bytes) -> int | None:
    """The value that a completion ends with; None where it is no row of steps with an end."""
    match = _WHOLE.fullmatch(completion)
    return None if match is None else int(completion[completion.rfind(STEP_END) + 1 : -1])
