"""How the kernel tables spread a step's tokens over experts, and how many experts that touches.

The tables name three distributions. "balanced" deals tokens out evenly. "power_law_A" draws a size for each expert from a
density proportional to x^-A, on [1, 0.8 tokens], or on [0.01, 2] where choices are no more than experts. Loads are the sizes'
shares of all choices, rounded, at most one choice per token; what is then missing or too much is dealt one each to the
experts with the fewest. A table's time is the mean over a few draws, so that the mean number of touched experts belongs to it.

Source: the rule of the tables' collector, github.com/ai-dynamo/aiconfigurator, collector/helper.py.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

__all__ = ["EVEN", "drawn_loads", "popularity_in_table", "touched_in_table"]

#: The distribution whose loads are all alike.
EVEN = "balanced"

_POWER_LAW = "power_law_"
_DRAWS = 16
#: Experts that independent tokens may leave out where a table's touch all: popularity has no way to make it none.
_LEFT_OUT = 1e-3


def drawn_loads(
    rng: np.random.Generator, tokens: int, num_experts: int, experts_per_token: int, exponent: float
) -> npt.NDArray[np.int64]:
    """One draw of a power law: choices per expert, "expert", their sum tokens * experts_per_token, none above tokens.

    Args:
        rng: drawn from.
        tokens, num_experts: >= 1.
        experts_per_token: in [1, num_experts].
        exponent: > 0, not 1.
    """
    choices, power = tokens * experts_per_token, 1.0 - exponent
    low, high = (1.0, 0.8 * tokens) if choices > num_experts else (0.01, 2.0)
    sizes = (low**power + (high**power - low**power) * rng.random(num_experts)) ** (1.0 / power)
    loads = np.minimum(np.rint(sizes / sizes.sum() * choices), tokens).astype(np.int64)
    fewest_first = np.argsort(loads, kind="stable")
    while (missing := choices - int(loads.sum())) != 0:
        if missing > 0:
            dealt = fewest_first[loads[fewest_first] < tokens][:missing]
            loads[dealt] += 1
        else:
            taken = fewest_first[:-missing]
            held = taken[loads[taken] > 0]
            # An expert without a choice leaves it to the one with most.
            loads[np.argmax(loads)] -= len(taken) - len(held)
            loads[held] -= 1
    return loads


@functools.cache
def touched_in_table(distribution: str, tokens: int, num_experts: int, experts_per_token: int) -> float:
    """Experts that have at least one token, on average over draws; the same on every machine.

    Args:
        distribution: as a table names it.
        tokens, num_experts, experts_per_token: as of `drawn_loads`.
    Raises:
        ValueError: a distribution that is not known here.
    """
    if distribution == EVEN:
        return float(min(num_experts, tokens * experts_per_token))
    if not distribution.startswith(_POWER_LAW):
        raise ValueError(f"distribution {distribution!r} is not known; known: {EVEN}, {_POWER_LAW}EXPONENT")
    draws = _draws(distribution, tokens, num_experts, experts_per_token)
    return float(np.mean(np.count_nonzero(draws, axis=1)))


@functools.cache
def popularity_in_table(
    distribution: str, tokens: int, num_experts: int, experts_per_token: int
) -> npt.NDArray[np.float64]:
    """Popularity with which independent tokens touch as many experts as in a table, and load them as unevenly.

    The mean loads of a draw, the busiest expert first. Rounded loads leave fewer experts out than tokens that choose on their
    own would, so that the least loads are raised to a floor where that is needed; what makes devices unequal lies above it.

    Args:
        distribution, tokens, num_experts, experts_per_token: as of `touched_in_table`.
    Returns:
        "expert", decreasing, sums to 1; all alike where no other touches as many.
    Raises:
        ValueError: as `touched_in_table`.
    """
    even = np.full(num_experts, 1.0 / num_experts)
    touched = min(touched_in_table(distribution, tokens, num_experts, experts_per_token), num_experts - _LEFT_OUT)
    if distribution == EVEN:
        return even
    draws = _draws(distribution, tokens, num_experts, experts_per_token)
    loads = np.sort(draws, axis=1)[:, ::-1].mean(axis=0)

    def raised(floor: float) -> npt.NDArray[np.float64]:
        shares = np.maximum(loads, floor)
        return shares / shares.sum()

    def left_out(popularity: npt.NDArray[np.float64]) -> float:
        return float(np.sum((1.0 - np.minimum(popularity * experts_per_token, 1.0)) ** tokens))

    low, high = 0.0, float(loads[0])
    if num_experts - left_out(even) <= touched:
        return even
    if num_experts - left_out(raised(low)) >= touched:
        return raised(low)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if num_experts - left_out(raised(middle)) < touched else (low, middle)
    return raised(high)


@functools.cache
def _draws(distribution: str, tokens: int, num_experts: int, experts_per_token: int) -> npt.NDArray[np.int64]:
    """Loads by draw of a power law, "draw expert"."""
    exponent = float(distribution.removeprefix(_POWER_LAW))
    rng = np.random.default_rng(0)
    return np.stack([drawn_loads(rng, tokens, num_experts, experts_per_token, exponent) for _ in range(_DRAWS)])
