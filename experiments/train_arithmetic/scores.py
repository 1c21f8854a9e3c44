"""How well the networks do on problems that they have not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from experiments.train_arithmetic.train import HELD_OUT, SHAPE, answers
from jaxspec.models.decoder import Params
from jaxspec.scaling.estimators import best_of_n_rate, pass_at_n
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, answer_of, problems
from jaxspec.scaling.verifiers.judge import Judge

#: Problems and samples of each.
PROBLEMS, SAMPLES = 100, 16

#: Samples that are chosen among.
_NUMBERS = (1, 4, 16)


class Answered(NamedTuple):
    """A held-out problem with answers of a solver.

    Attributes:
        prompt: its tokens; samples: of the answers.
        right: which of them end with the right value.
    """

    prompt: Int[np.ndarray, " token"]
    samples: list[Int[np.ndarray, " token"]]
    right: Bool[np.ndarray, " sample"]


def answered(solver: Params) -> list[Answered]:
    """The held-out problems, answered."""
    found = []
    for number, problem in enumerate(problems(PROBLEMS, seed=HELD_OUT)):
        prompt, samples = answers(solver, problem, number, samples=SAMPLES, seed=0)
        values = [answer_of(bytes(text.astype(np.uint8))) for text in samples]
        found.append(Answered(prompt, samples, np.array([value == problem.value for value in values])))
    return found


def scores_of(found: list[Answered], judge: Params) -> dict[str, float]:
    """Share of right samples, and of problems where one of several is right, or the one that the judge likes best is."""
    verifier = Judge(judge, SHAPE, (STEP_END[0], END[0]))
    correct = np.stack([one.right for one in found])
    liked = np.stack([verifier(one.prompt, one.samples) for one in found])
    return {f"pass_at_{n}": float(np.mean(pass_at_n(correct, n))) for n in _NUMBERS} | {
        f"best_of_{n}": float(np.mean(best_of_n_rate(liked, correct, n))) for n in _NUMBERS
    }
