"""Whether a text is Python: it parses, it compiles, its doctests hold."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from jaxtyping import Float

from jaxspec.scaling.verifiers.sandbox import DEFAULT_LIMITS, Limits, Verdict, run_sandboxed

__all__ = ["compiles", "doctests_hold", "parses"]

#: Processes at a time.
_AT_ONCE = 2


def _all(check: str, texts: Sequence[str], limits: Limits, unsafe: bool = False) -> Float[np.ndarray, " text"]:
    # Equal texts are looked at once.
    different = list(dict.fromkeys(texts))
    look = partial(run_sandboxed, check, limits=limits, unsafe=unsafe)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        verdicts = dict(zip(different, pool.map(look, different), strict=True))
    return np.array([float(verdicts[text] is Verdict.HOLDS) for text in texts])


def parses(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Float[np.ndarray, " text"]:
    """1 where a text is syntactically Python, 0 elsewhere."""
    return _all("parses", texts, limits)


def compiles(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Float[np.ndarray, " text"]:
    """1 where it also compiles: `return` stands in a function, names are declared once, and so on."""
    return _all("compiles", texts, limits)


def doctests_hold(
    texts: Sequence[str], limits: Limits = DEFAULT_LIMITS, *, unsafe: bool = False
) -> Float[np.ndarray, " text"]:
    """1 where it also has a doctest and runs, isolated from the system, and all of its doctests hold.

    Args:
        unsafe: run code also where nothing isolates it.
    Raises:
        InputError: nothing isolates code here.
    """
    return _all("doctests", texts, limits, unsafe)
