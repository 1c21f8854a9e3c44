"""How well the networks do on problems that they have not seen."""

from __future__ import annotations

import numpy as np

from experiments.train_arithmetic.train import HELD_OUT, SHAPE, answers
from jaxspec.models.decoder import Params
from jaxspec.scaling.estimators import best_of_n_rate, pass_at_n
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, answer_of, problems
from jaxspec.scaling.verifiers.judge import Judge

#: Problems and samples of each.
_PROBLEMS, _SAMPLES = 100, 16


def _sampled(solver: Params) -> list[tuple[np.ndarray, list[np.ndarray], np.ndarray]]:
    """Of each problem: its tokens, samples, and which of them end with the right value."""
    found = []
    for number, problem in enumerate(problems(_PROBLEMS, seed=HELD_OUT)):
        prompt, samples = answers(solver, problem, number, samples=_SAMPLES, seed=0)
        values = [answer_of(bytes(text.astype(np.uint8))) for text in samples]
        found.append((prompt, samples, np.array([value == problem.value for value in values])))
    return found


def solver_score(solver: Params) -> dict[str, float]:
    """Share of right samples, and of problems with at least one right sample among 16."""
    correct = np.stack([right for _, _, right in _sampled(solver)])
    return {f"pass_at_{n}": float(np.mean(pass_at_n(correct, n))) for n in (1, 4, 16)}


def judge_score(solver: Params, judge: Params) -> dict[str, float]:
    """Share of problems where the sample that the judge likes best is right."""
    verifier = Judge(judge, SHAPE, (STEP_END[0], END[0]))
    sampled = _sampled(solver)
    correct = np.stack([right for _, _, right in sampled])
    scores = np.stack([verifier(prompt, samples) for prompt, samples, _ in sampled])
    return {f"best_of_{n}": float(np.mean(best_of_n_rate(scores, correct, n))) for n in (1, 4, 16)}
