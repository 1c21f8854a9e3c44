"""From samples to accuracy against budget: estimates without bias, with intervals over problems."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxspec.results import measured
from jaxspec.runs.stages import Arrays
from jaxspec.scaling.estimators import (
    DEVIATES,
    best_of_n_rate,
    longest_of_batch,
    longest_of_n,
    majority_rate,
    mean_and_error,
    pass_at_n,
    rate_interval,
)
from jaxspec.studies.scale.result import CurvePoint
from jaxspec.studies.scale.stages import ScaleStages

__all__ = ["Measured", "curve_point", "measured_method"]


class Measured(NamedTuple):
    """A method with a budget, problem by problem.

    Attributes:
        rate: chance to be right. tokens: generated. passes: of the network. rounds: of scores.
        samples: of which `passes` is the longest; None: each problem takes what it took.
    """

    rate: Float[np.ndarray, " problem"]
    tokens: Float[np.ndarray, " problem"]
    passes: Float[np.ndarray, " problem"]
    rounds: Float[np.ndarray, " problem"]
    lengths: np.ndarray
    drawn: int

    def batch_passes(self, batch: int) -> float:
        """Passes until the longest of so many problems ends."""
        return longest_of_batch(self.lengths, self.drawn, batch)


def measured_method(stages: ScaleStages, model: str, method: str, samples: int) -> Measured:
    """What a method reaches and takes with a budget; of a budget of one, all methods are one sample."""
    found = stages.samples(model)
    if method == "beam" and samples > 1:
        beams = stages.beams(model, samples)
        parts = (beams[name].astype(np.float64) for name in ("right", "tokens", "passes", "rounds"))
        return Measured(*parts, lengths=beams["passes"][:, None], drawn=1)
    rate = _rate(found, method if samples > 1 else "pass-at-n", samples, stages)
    once = np.ones(len(rate))
    tokens, passes = samples * found["spent"].mean(axis=1), longest_of_n(found["spent"], samples)
    return Measured(rate, tokens, passes, once, lengths=found["spent"], drawn=samples)


def _rate(found: Arrays, method: str, samples: int, stages: ScaleStages) -> np.ndarray:
    if method == "pass-at-n":
        return pass_at_n(found["right"], samples)
    if method == "best-of-n":
        return best_of_n_rate(found["score"], found["right"], samples)
    right = np.array([stages.problems.right_answer(i) for i in range(len(found["answer"]))])
    return majority_rate(found["answer"], right, samples, seed=stages.config.seed)


def curve_point(one: Measured, found: Measured, samples: int) -> CurvePoint:
    """A point of a curve.

    Args:
        one: what a single sample reaches on the same problems.
    """
    rate, gain = found.rate, found.rate - one.rate
    low, high = rate_interval(rate)
    # Samples of a problem are counted in both: the difference is taken problem by problem.
    gain_mean, gain_error = mean_and_error(gain)
    spread = DEVIATES * gain_error
    return CurvePoint(
        samples=samples,
        accuracy=measured(*mean_and_error(rate)),
        low=measured(low),
        high=measured(high),
        gain=measured(gain_mean, gain_error),
        gain_low=measured(gain_mean - spread),
        gain_high=measured(gain_mean + spread),
        tokens=measured(*mean_and_error(found.tokens)),
        passes=measured(*mean_and_error(found.passes)),
    )
