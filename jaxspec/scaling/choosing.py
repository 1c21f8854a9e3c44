"""One answer of several samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float

__all__ = ["best_of_n", "majority_answer"]

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
