"""Train the networks that do arithmetic in steps and judge it: `python -m experiments.train_arithmetic`.

First the solver, which stops early so that it errs; then the judge, which goes on from there until it hardly does. Stops and
starts as `experiments.train_embedded` does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Int

from experiments.model_cards import training_facts, write_card
from experiments.train_embedded.train import Recipe, optimizer, run_steps
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text, init_params
from jaxspec.models.hf_export import save_directory
from jaxspec.partial_files import write_text
from jaxspec.scaling.branches import sample_continuations
from jaxspec.scaling.estimators import best_of_n_rate, pass_at_n
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, Problem, answer_of, problems, solution
from jaxspec.scaling.verifiers.judge import Judge

# Training of a network that does arithmetic in steps, and of a better one that judges its steps.

#: Of both networks: 0.42 M parameters.
SHAPE = DecoderConfig(
    vocab_size=256,
    hidden_size=96,
    intermediate_size=192,
    num_layers=4,
    num_heads=4,
    num_kv_heads=4,
    head_dim=24,
)

#: Bytes of a row: one problem with its steps.
ROW = 72

#: Most bytes of an answer.
ANSWER = 56

#: Rows of a step.
ROWS = 128

#: What the schedule of the solver's learning rate is made for.
RECIPE = Recipe(steps=1200, tokens_per_step=ROW * ROWS, window=ROW, long_window=ROW)

#: Steps after which the solver stops, while the rate still falls: 84 % of its samples are right then.
SOLVER_STEPS = 900

#: The judge goes on from there with a rate that falls to zero; 93 % of its own samples would be right.
JUDGE_RECIPE = dataclasses.replace(RECIPE, steps=1000)

#: Seeds of problems: training and what is held out draw apart.
TRAINING, HELD_OUT = 1, 3


def solved_rows(step: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Problems with their solutions, "row place", and whether the next byte is to be learned; a function of the step."""
    drawn = problems(ROWS, seed=int(np.random.SeedSequence([TRAINING, seed, step]).generate_state(1)[0]))
    return text_rows(drawn, [solution(problem) for problem in drawn])


def text_rows(drawn: list[Problem], completions: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Problems with what follows them, "row place", and whether the next byte belongs to that."""
    tokens, learned = np.zeros((len(drawn), ROW + 1), np.int32), np.zeros((len(drawn), ROW), bool)
    for row, (problem, completion) in enumerate(zip(drawn, completions, strict=True)):
        text = problem.text + completion
        tokens[row, : len(text)] = np.frombuffer(text, np.uint8)
        learned[row, len(problem.text) - 1 : len(text) - 1] = True
    return tokens, learned


def answers(
    solver: Params, problem: Problem, number: int, *, samples: int, seed: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A problem's tokens, and samples of its answer."""
    prompt = np.frombuffer(problem.text, np.uint8).astype(np.int32)
    continued = sample_continuations(
        solver,
        SHAPE,
        prompt,
        samples=samples,
        num_tokens=ANSWER,
        seed=jax.random.key(seed),
        prompt_id=number,
        stop=np.frombuffer(END, np.uint8),
        width=samples,
    )
    return prompt, continued.texts()


def masked_loss(params: Params, tokens: jax.Array, targets: jax.Array, learned: jax.Array) -> jax.Array:
    """Mean cross-entropy in nats where something is to be learned."""
    frugal = jax.default_backend() == "cpu"
    options: dict[str, Any] = {"dot_dtype": jnp.bfloat16, "frugal": True} if frugal else {}
    logits = forward_text(params, SHAPE, tokens, **options).logits
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(loss * learned) / jnp.maximum(jnp.sum(learned), 1)


def make_step(recipe: Recipe) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The optimiser's initial state, and the jitted, donated step (params, state, (tokens, targets, learned))."""
    transform = optimizer(recipe)

    def step(params, opt_state, batch):
        loss, gradient = jax.value_and_grad(masked_loss)(params, *batch)
        updates, opt_state = transform.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return transform.init, jax.jit(step, donate_argnums=(0, 1))


def batch_at(step: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What both networks learn from in a step."""
    tokens, learned = solved_rows(step, seed)
    return tokens[:, :-1], tokens[:, 1:], learned


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
