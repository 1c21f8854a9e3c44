"""What choosing among N samples gives, estimated without bias from M >= N samples of each prompt.

Estimators give one number for each prompt; `mean_and_error` and `rate_interval` are over prompts.

One answer of several samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

__all__ = [
    "DEVIATES",
    "best_of_n",
    "best_of_n_rate",
    "longest_of_batch",
    "longest_of_n",
    "majority_answer",
    "majority_rate",
    "mean_and_error",
    "pass_at_n",
    "rate_interval",
]

_RESAMPLES = 400

#: Standard errors of a 95 % interval.
DEVIATES = 1.959964


def _log_choose(total: np.ndarray, chosen: int) -> np.ndarray:
    """Logarithm of the number of subsets; -inf where there is none."""
    enough = total >= chosen
    total = np.where(enough, total, chosen)
    return np.where(enough, gammaln(total + 1.0) - gammaln(chosen + 1.0) - gammaln(total - chosen + 1.0), -np.inf)


def _check(samples: int, n: int) -> None:
    if not 1 <= n <= samples:
        raise ValueError(f"n is {n}; with {samples} samples of each prompt it must be from 1 to {samples}")


def pass_at_n(correct: Bool[np.ndarray, "prompt sample"], n: int) -> Float[np.ndarray, " prompt"]:
    """Probability that at least one of n samples is correct: 1 - C(M - c, n) / C(M, n), with c of M correct.

    Raises:
        ValueError: n below 1 or above M.
    Source: Chen et al. 2021, arXiv:2107.03374, Eq. (1).
    """
    samples = correct.shape[1]
    _check(samples, n)
    wrong = samples - np.sum(correct, axis=1)
    return 1.0 - np.exp(_log_choose(wrong, n) - _log_choose(np.asarray(samples), n))


def best_of_n_rate(
    scores: Float[np.ndarray, "prompt sample"], correct: Bool[np.ndarray, "prompt sample"], n: int
) -> Float[np.ndarray, " prompt"]:
    """Probability that the sample with the highest score among n is correct; of equal scores, each is as likely.

    Exact over all subsets of n among the M samples: the highest score of a subset is s with probability
    (C(#scores <= s, n) - C(#scores < s, n)) / C(M, n). NaN is below all numbers.

    Raises:
        ValueError: n below 1 or above M.
    """
    samples = scores.shape[1]
    _check(samples, n)
    scores = np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf)
    below = np.sum(scores[:, None, :] < scores[:, :, None], axis=2)
    equal = np.sum(scores[:, None, :] == scores[:, :, None], axis=2)
    everything = _log_choose(np.asarray(samples), n)
    highest = np.exp(_log_choose(below + equal, n) - everything) - np.exp(_log_choose(below, n) - everything)
    return np.sum(highest / equal * correct, axis=1)


def majority_rate(
    answers: Int[np.ndarray, "prompt sample"], right: Int[np.ndarray, " prompt"], n: int, *, seed: int = 0
) -> Float[np.ndarray, " prompt"]:
    """Probability that the answer that most of n samples give is right; of equal counts, the first drawn wins.

    Estimated over 400 random subsets of each prompt's samples (all of them in one order, where n is M).

    Args:
        answers: by number, which may be any; negative: no answer, which has no vote.
        right: the right answer's number, not negative.
    Raises:
        ValueError: n below 1 or above M.
    Source: Wang et al. 2022, arXiv:2203.11171.
    """
    samples = answers.shape[1]
    _check(samples, n)
    rng = np.random.default_rng([seed, samples, n])
    rates = np.zeros(len(answers))
    for row, wanted in enumerate(right):
        order = np.argsort(rng.random((_RESAMPLES, samples)), axis=1)[:, :n]
        drawn = answers[row][order]
        votes = np.sum((drawn[:, :, None] == drawn[:, None, :]) & (drawn[:, :, None] >= 0), axis=2)
        # The first place among those with the most votes.
        winner = np.take_along_axis(drawn, np.argmax(votes, axis=1)[:, None], axis=1)[:, 0]
        rates[row] = np.mean((winner == wanted) & (np.max(votes, axis=1) > 0))
    return rates


def longest_of_n(lengths: Int[np.ndarray, "prompt sample"], n: int) -> Float[np.ndarray, " prompt"]:
    """Expected length of the longest of n samples, exact over all subsets of n: a batch runs until its longest sample ends.

    Raises:
        ValueError: n below 1 or above M.
    """
    ordered, chance = _longest_law(lengths, n)
    return np.sum(ordered * chance, axis=1)


def longest_of_batch(lengths: Int[np.ndarray, "prompt sample"], n: int, batch: int) -> float:
    """Expected length of the longest of n samples of each of `batch` prompts, drawn independently.

    Raises:
        ValueError: n below 1 or above M.
    """
    ordered, chance = _longest_law(lengths, n)
    lengths, place = np.unique(ordered, return_inverse=True)
    mass = np.bincount(place.ravel(), weights=chance.ravel()) / len(ordered)
    below = np.minimum(np.cumsum(mass), 1.0) ** batch
    return float(np.sum(lengths * np.diff(below, prepend=0.0)) / below[-1])


def _longest_law(
    lengths: Int[np.ndarray, "prompt sample"], n: int
) -> tuple[Int[np.ndarray, "prompt sample"], Float[np.ndarray, "prompt sample"]]:
    """Lengths in rising order, and the chance of each to be the longest of n; of equal ones, the last is."""
    samples = lengths.shape[1]
    _check(samples, n)
    place = np.arange(1, samples + 1)
    everything = _log_choose(np.asarray(samples), n)
    chance = np.exp(_log_choose(place, n) - everything) - np.exp(_log_choose(place - 1, n) - everything)
    return np.sort(lengths, axis=1), np.broadcast_to(chance, lengths.shape)


def mean_and_error(values: Float[np.ndarray, " prompt"]) -> tuple[float, float]:
    """Mean over two prompts or more, and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def rate_interval(rate: Float[np.ndarray, " prompt"]) -> tuple[float, float]:
    """95 % interval of a mean of rates that never leaves [0, 1], and is no point where all are 0 or all are 1.

    Source: Wilson 1927 (score interval), with the number of problems that a share of zeros and ones would need for the same
        standard error; Korn and Graubard 1998 do so for surveys.
    """
    mean, error = mean_and_error(rate)
    count = mean * (1 - mean) / error**2 if error > 0 else float(len(rate))
    squared = DEVIATES**2 / count
    middle, spread = mean + squared / 2, DEVIATES * np.sqrt(mean * (1 - mean) / count + squared / (4 * count))
    return float(max(0.0, (middle - spread) / (1 + squared))), float(min(1.0, (middle + spread) / (1 + squared)))


Answer = TypeVar("Answer", bound=Hashable)


def best_of_n(scores: Float[np.ndarray, " sample"]) -> int:
    """Which sample has the highest score, the first on a tie. NaN is below all numbers.

    Raises:
        ValueError: no sample.
    """
    if len(scores) == 0:
        raise ValueError("no sample came; best-of-N needs one or more")
    return int(np.argmax(np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf)))


def majority_answer(answers: Sequence[Answer | None]) -> Answer | None:
    """The answer that most samples give, of those that tie the first to come; None where no sample has one.

    Source: Wang et al. 2022, arXiv:2203.11171 (self-consistency).
    """
    votes = Counter(answer for answer in answers if answer is not None)
    # A counter keeps the order of the first votes, and the first of equal counts is the largest.
    return max(votes, key=votes.__getitem__, default=None)
