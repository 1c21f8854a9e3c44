"""Tokens per cycle as a law of the verification length: AAT(x) = A + B ln(x − C).

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-A, Eq. (3).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from jaxspec.errors import InputError

__all__ = ["AATLaw", "average_accepted_tokens", "checked_points", "law_on_host", "r_squared"]


@struct.dataclass
class AATLaw:
    """A + B ln(x − C); each may be a batch of numbers, as for several context lengths.

    Attributes:
        intercept: A, tokens per cycle.
        log_slope: B, tokens per cycle and unit of the logarithm.
        shift: C, tokens; the law holds for x > C.
    """

    intercept: Any
    log_slope: Any
    shift: Any


def _as_float(value: ArrayLike) -> Array:
    array: Array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def _over_lengths(law: AATLaw, verification_length: ArrayLike) -> list[Array]:
    """The law's numbers and the lengths, broadcast against each other."""
    return jnp.broadcast_arrays(law.intercept, law.log_slope, law.shift, _as_float(verification_length))


def average_accepted_tokens(law: AATLaw, verification_length: Num[ArrayLike, "*b"]) -> Float[Array, "*b"]:
    """Tokens gained per cycle by the law, differentiable in its numbers and in the length.

    Args:
        law: leaves broadcast against the lengths.
        verification_length: "*b", x in tokens, root included; need not be whole, but > C.
    Returns:
        "*b", tokens per cycle; NaN or infinite where x <= C.
    Source: Eq. (3).
    """
    intercept, log_slope, shift, length = _over_lengths(law, verification_length)
    return intercept + log_slope * jnp.log(length - shift)


def r_squared(
    law: AATLaw, verification_length: Num[npt.ArrayLike, " point"], tokens_per_cycle: Num[npt.ArrayLike, " point"]
) -> float:
    """Share of the variance of measured points that the law explains: 1 − Σ residual² / Σ (measured − mean)².

    Args:
        law: single numbers.
        verification_length, tokens_per_cycle: "point", two or more; held out, if the law is to be judged.
    Returns:
        At most 1; below 0 where the points' own mean predicts better.
    Raises:
        InputError: lengths that differ, fewer than two points, a number that is not finite, all points equal, or x <= C.
    """
    length, tokens = checked_points(verification_length, tokens_per_cycle, at_least=2)
    if length.min() <= float(law.shift):
        raise InputError(
            f"verification length {length.min():g} is not above the law's C = {float(law.shift):g}; leave it out"
        )
    total = float(np.sum((tokens - tokens.mean()) ** 2))
    if total == 0:
        raise InputError(f"all {tokens.size} points are {tokens[0]:g} tokens per cycle; R² needs points that differ")
    return 1.0 - float(np.sum((tokens - law_on_host(law, length)) ** 2)) / total


def law_on_host(law: AATLaw, length: np.ndarray) -> np.ndarray:
    """The law in double precision, which JAX has not by default."""
    return float(law.intercept) + float(law.log_slope) * np.log(length - float(law.shift))


def checked_points(length: npt.ArrayLike, tokens: npt.ArrayLike, *, at_least: int) -> tuple[np.ndarray, np.ndarray]:
    """Measured points as arrays of double precision.

    Raises:
        InputError: lists of other shapes, a number that is not finite, a length below 1, or fewer than `at_least` lengths.
    """
    lengths, measured = np.asarray(length, np.float64), np.asarray(tokens, np.float64)
    if lengths.ndim != 1 or lengths.shape != measured.shape:
        raise InputError(
            f"lengths have shape {lengths.shape} and tokens per cycle {measured.shape}; give one list of points for each"
        )
    if not (np.isfinite(lengths).all() and np.isfinite(measured).all()):
        raise InputError("a verification length or its tokens per cycle is not a finite number; leave the point out")
    if lengths.size and lengths.min() < 1:
        raise InputError(f"verification length {lengths.min():g} is below 1; count the root, as 1")
    if np.unique(lengths).size < at_least:
        raise InputError(
            f"{np.unique(lengths).size} different verification lengths came; {at_least} or more are needed"
        )
    return lengths, measured
