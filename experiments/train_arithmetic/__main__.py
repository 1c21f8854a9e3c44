"""Train the networks that do arithmetic in steps and judge it: `python -m experiments.train_arithmetic`.

First the solver, on problems with their right steps; then the judge, which starts as the solver, on the solver's own samples
and on solutions with a slip, each step of which is marked right or wrong by working it out. Stops and starts as
`experiments.train_embedded` does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.model_cards import training_facts, write_card
from experiments.train_arithmetic.scores import PROBLEMS, answered, scores_of
from experiments.train_arithmetic.train import (
    JUDGE_RECIPE,
    RECIPE,
    SHAPE,
    SOLVER_STEPS,
    Judged,
    judge_batch,
    judged_samples,
    make_step,
    solver_batch,
)
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
    parser.add_argument("--steps", type=int, default=SOLVER_STEPS, help="training steps of the solver")
    parser.add_argument("--judge-steps", type=int, default=JUDGE_RECIPE.steps, help="training steps of the judge")
    parser.add_argument("--judged", type=int, default=800, help="problems whose samples the judge learns from")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    out = args.out or args.run / "weights"

    about: dict[str, dict[str, Any]] = {}

    def trained(name: str, recipe: Recipe, steps: int, params: Params, batch_at) -> Params:
        init, step = make_step(dataclasses.replace(recipe, seed=args.seed))
        # A step is given its parameters away, and the first of a judge are the solver's.
        params = jax.tree.map(jnp.copy, params)
        state = run_steps(
            args.run / name,
            params,
            init(params),
            step,
            batch_at,
            steps=steps,
            checkpoint_every=100,
            scale=1.0,
            unit="nats",
        )
        save_directory(state["params"], SHAPE, out / name, max_positions=128)
        about[name] = training_facts(state, {}, recipe) | {"problems": PROBLEMS}
        # As they are stored.
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), state["params"])

    start = init_params(SHAPE, jax.random.key(args.seed))
    solver = trained("solver", RECIPE, args.steps, start, lambda step: solver_batch(step, args.seed))
    samples = args.run / f"judged-{args.judged}.npz"
    if not samples.is_file():
        np.savez(samples, **judged_samples(solver, args.judged, args.seed)._asdict())
    with np.load(samples) as stored:
        rows = Judged(**stored)
    judging = dataclasses.replace(JUDGE_RECIPE, steps=args.judge_steps)
    judge = trained("judge", judging, args.judge_steps, solver, lambda step: judge_batch(rows, step, args.seed))
    facts = scores_of(answered(solver), judge)
    drawn = {"judged": args.judged, "answers": len(rows.tokens)}
    for name, card in (("solver", "arithmetic"), ("judge", "judge")):
        write_card(out / name, card, SHAPE, about[name] | facts | drawn)
    print(json.dumps(facts))
    write_text(out / "scores.json", json.dumps(facts, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
