"""Train the networks that do arithmetic in steps and judge it: `python -m experiments.train_arithmetic`.

First the solver, which stops early so that it errs; then the judge, which goes on from there until it hardly does. Stops and
starts as `experiments.train_embedded` does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from experiments.model_cards import training_facts, write_card
from experiments.train_arithmetic.train import (
    HELD_OUT,
    JUDGE_RECIPE,
    RECIPE,
    SHAPE,
    SOLVER_STEPS,
    answers,
    batch_at,
    make_step,
)
from experiments.train_embedded.loop import run_steps
from experiments.train_embedded.train import Recipe
from jaxspec.files import write_text
from jaxspec.models.decoder import Params, init_params
from jaxspec.models.hf_export import save_directory
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
    answered_problems = []
    for number, problem in enumerate(problems(PROBLEMS, seed=HELD_OUT)):
        prompt, samples = answers(solver, problem, number, samples=SAMPLES, seed=0)
        values = [answer_of(bytes(text.astype(np.uint8))) for text in samples]
        answered_problems.append(Answered(prompt, samples, np.array([value == problem.value for value in values])))
    return answered_problems


def scores_of(answers: list[Answered], judge: Params) -> dict[str, float]:
    """Share of right samples, and of problems where one of several is right, or the one that the judge likes best is."""
    verifier = Judge(judge, SHAPE, (STEP_END[0], END[0]))
    correct = np.stack([one.right for one in answers])
    liked = np.stack([verifier(one.prompt, one.samples) for one in answers])
    return {f"pass_at_{n}": float(np.mean(pass_at_n(correct, n))) for n in _NUMBERS} | {
        f"best_of_{n}": float(np.mean(best_of_n_rate(liked, correct, n))) for n in _NUMBERS
    }


def main() -> None:
    """Train, or resume, then export and score."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_arithmetic", description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/train_arithmetic"), help="folder of the checkpoints")
    parser.add_argument("--out", type=Path, help="folder for both networks; default: inside --run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    out = args.out or args.run / "weights"

    def trained(name: str, recipe: Recipe, steps: range, params: Params, opt_state: Any = None) -> dict[str, Any]:
        init, step = make_step(dataclasses.replace(recipe, seed=args.seed))
        # A step is given its arguments away, and the judge's first ones are the solver's last.
        opt_state = init(params) if opt_state is None else jax.tree.map(jnp.copy, opt_state)
        state = run_steps(
            args.run / name,
            jax.tree.map(jnp.copy, params),
            opt_state,
            step,
            lambda step: batch_at(steps[step], args.seed),
            steps=len(steps),
            checkpoint_every=100,
            scale=1.0,
            unit="nats",
        )
        save_directory(state["params"], SHAPE, out / name, max_positions=128)
        return state

    solver = trained("solver", RECIPE, range(SOLVER_STEPS), init_params(SHAPE, jax.random.key(args.seed)))
    further = range(SOLVER_STEPS, JUDGE_RECIPE.steps)
    judge = trained("judge", JUDGE_RECIPE, further, solver["params"], solver["opt_state"])
    stored = lambda state: jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), state["params"])
    facts = scores_of(answered(stored(solver)), stored(judge)) | {"problems": PROBLEMS}
    for name, card, state, recipe in (
        ("solver", "arithmetic", solver, RECIPE),
        ("judge", "judge", judge, JUDGE_RECIPE),
    ):
        write_card(out / name, card, SHAPE, training_facts(state, {}, recipe) | facts)
    print(json.dumps(facts))
    write_text(out / "scores.json", json.dumps(facts, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
