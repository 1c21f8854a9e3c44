"""Train the embedded network: `python -m experiments.train_embedded`.

Stops and starts: every checkpoint holds parameters, optimiser state and step, and the text of a step depends on the seed and
the step alone, so a killed run goes on where it was. Takes about an hour on two CPU cores, minutes on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.train_embedded.corpus import held_out_bytes, sample_windows, standard_library, training_bytes
from experiments.train_embedded.export import export_directory, write_model_card
from experiments.train_embedded.train import EMBEDDED, Recipe, bits_per_byte, make_step
from jaxspec.models.decoder import init_params


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_embedded", description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/train_embedded"), help="folder of the checkpoints")
    parser.add_argument(
        "--out", type=Path, help="folder for the weights; default: inside --run, nothing is overwritten"
    )
    parser.add_argument("--stdlib", type=Path, default=standard_library(), help="folder of .py files to learn from")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="training steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--export-only", action="store_true", help="write the newest checkpoint's weights and stop")
    return parser.parse_args()


def main() -> None:
    """Train, or resume, then export and score."""
    args = parse_arguments()
    recipe = Recipe(steps=args.steps, seed=args.seed)
    corpus, held_out = training_bytes(args.stdlib), held_out_bytes(args.stdlib)
    init, step_function = make_step(recipe)
    params = init_params(EMBEDDED, jax.random.key(recipe.seed))
    state = {"params": params, "opt_state": init(params), "step": jnp.asarray(0)}
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager((args.run / "checkpoints").absolute(), options=options) as manager:
        if manager.latest_step() is not None:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract))
        first = int(state["step"])
        if not args.export_only:
            started = time.monotonic()
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns) as progress:
                task = progress.add_task("training", total=recipe.steps, completed=first)
                running = None
                for step in range(first, recipe.steps):
                    window = recipe.window_at(step)
                    tokens = sample_windows(corpus, recipe.seed, step, recipe.tokens_per_step // window, window + 1)
                    params, opt_state, loss = step_function(state["params"], state["opt_state"], tokens)
                    state = {"params": params, "opt_state": opt_state, "step": jnp.asarray(step + 1)}
                    bits = float(loss) / 0.6931471805599453
                    running = bits if running is None else 0.98 * running + 0.02 * bits
                    progress.update(task, completed=step + 1, description=f"training, {running:.3f} bits/byte")
                    if (step + 1) % args.checkpoint_every == 0 or step + 1 == recipe.steps:
                        manager.save(step + 1, args=ocp.args.StandardSave(state))
                        progress.console.print(
                            f"step {step + 1}: train {running:.3f} bits/byte, {time.monotonic() - started:.0f} s"
                        )
            manager.wait_until_finished()
    stored = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), state["params"])
    score = bits_per_byte(stored, held_out)
    out = args.out or args.run / "weights"
    export_directory(state["params"], EMBEDDED, out)
    facts = {
        "steps": int(state["step"]),
        "bits_per_byte": score,
        "training_bytes": {name: int(part.size) for name, part in corpus.items()},
        "recipe": dataclasses.asdict(recipe),
        "machine": f"{jax.default_backend()}, Python {platform.python_version()}, jax {jax.__version__}",
    }
    write_model_card(out, EMBEDDED, facts)
    print(f"held out: {score:.4f} bits per byte over {held_out.size} bytes; weights in {out}")


if __name__ == "__main__":
    main()
