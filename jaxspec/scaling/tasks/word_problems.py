"""Sums of two numbers as short stories, for networks that answer questions in words.

    Mia has 8 coins and gives away 5. How many coins does Mia have now?

An answer is right where the last number in it is the value.
"""

from __future__ import annotations

import re

import numpy as np

from jaxspec.scaling.tasks.arithmetic import Problem

__all__ = ["TEXT_END", "last_number", "word_problems"]

#: Ends a finished answer: no text has it.
TEXT_END = b"\0"

#: Numbers of a problem lie below this.
_MOST_NUMBER = 10

_NAMES = ("Tom", "Mia", "Sam", "Anna", "Ben", "Lea")
_THINGS = ("apples", "books", "coins", "pencils", "marbles", "cards")
#: A whole part, with commas between thousands or without, and decimals.
_NUMBER = re.compile(rb"(\d+(?:,\d{3})*)(?:\.(\d+))?")

#: Digits of the largest whole number that is an answer.
_MOST_DIGITS = 9


def word_problems(count: int, *, seed: int) -> list[Problem]:
    """Random problems: each seed draws its own, and the n-th does not depend on how many are drawn."""
    return [_drawn(np.random.default_rng([seed, number])) for number in range(count)]


def _drawn(rng: np.random.Generator) -> Problem:
    name, thing = _NAMES[rng.integers(len(_NAMES))], _THINGS[rng.integers(len(_THINGS))]
    less, more = sorted(int(number) for number in rng.choice(np.arange(2, _MOST_NUMBER), 2, replace=False))
    happens, value = (f"gives away {less}", more - less) if rng.random() < 0.5 else (f"gets {less} more", more + less)
    text = f"{name} has {more} {thing} and {happens}. How many {thing} does {name} have now?"
    return Problem(text.encode(), value)


def last_number(completion: bytes) -> int | None:
    """The last number of a finished answer; None where it has none or no whole one, or is not finished."""
    numbers = _NUMBER.findall(completion) if completion.endswith(TEXT_END) else []
    whole, decimals = numbers[-1] if numbers else (b"", b"")
    whole = whole.replace(b",", b"")
    return int(whole) if 0 < len(whole) <= _MOST_DIGITS and not decimals.strip(b"0") else None
