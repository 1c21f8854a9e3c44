"""Train the networks that do arithmetic in steps and judge it: `python -m experiments.train_arithmetic`.

First the solver, which stops early so that it errs; then the judge, which goes on from there until it hardly does. Stops and
starts as `experiments.train_embedded` does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.model_cards import training_facts, write_card
from experiments.train_arithmetic.scores import PROBLEMS, answered, scores_of
from experiments.train_arithmetic.train import JUDGE_RECIPE, RECIPE, SHAPE, SOLVER_STEPS, batch_at, make_step
from experiments.train_embedded.loop import run_steps
from experiments.train_embedded.train import Recipe
from jaxspec.files import write_text
from jaxspec.models.decoder import Params, init_params
from jaxspec.models.hf_export import save_directory


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
