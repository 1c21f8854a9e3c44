"""Train the embedded network, the small one that drafts for it, or the mixture of experts:
`python -m experiments.train_embedded`.

Stops and starts: every checkpoint holds parameters, optimiser state and step, and the text of a step depends on the seed and
the step alone, so a killed run goes on where it was. Takes about an hour on two CPU cores, minutes on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.model_cards import load_lines, training_facts, write_card
from experiments.train_embedded.train import (
    RECIPES,
    SHAPES,
    agreement_lines,
    bits_per_byte,
    embedded_agreement,
    held_out_bytes,
    load_summary,
    make_step,
    router_load,
    run_steps,
    sample_windows,
    standard_library,
    training_bytes,
)
from jaxspec.models.decoder import init_params
from jaxspec.models.hf_export import save_directory
from jaxspec.speculate.drafts.network_draft import NetworkDraft


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_embedded", description=__doc__)
    parser.add_argument(
        "--shape",
        choices=SHAPES,
        default="embedded",
        help="the embedded network (default), the small draft for it, or the mixture of experts",
    )
    parser.add_argument(
        "--run",
        type=Path,
        help="folder of the checkpoints (default runs/train_embedded; of another shape runs/train_<shape>)",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the weights; default: inside --run, nothing is overwritten"
    )
    parser.add_argument("--stdlib", type=Path, default=standard_library(), help="folder of .py files to learn from")
    parser.add_argument("--steps", type=int, help="training steps (default: the shape's own recipe)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=100)
    parser.add_argument("--export-only", action="store_true", help="write the newest checkpoint's weights and stop")
    args = parser.parse_args()
    args.run = args.run or Path("runs/train_embedded" if args.shape == "embedded" else f"runs/train_{args.shape}")
    return args


def main() -> None:
    """Train, or resume, then export and score."""
    args = parse_arguments()
    config, recipe = SHAPES[args.shape], RECIPES[args.shape]
    recipe = dataclasses.replace(recipe, steps=args.steps or recipe.steps, seed=args.seed)
    corpus, held_out = training_bytes(args.stdlib), held_out_bytes(args.stdlib)
    init, step_function = make_step(recipe, config)
    params = init_params(config, jax.random.key(recipe.seed))

    def batch_at(step):
        window = recipe.window_at(step)
        return sample_windows(corpus, recipe.seed, step, recipe.tokens_per_step // window, window + 1)

    state = run_steps(
        args.run / "checkpoints",
        params,
        init(params),
        step_function,
        batch_at,
        steps=0 if args.export_only else recipe.steps,
        checkpoint_every=args.checkpoint_every,
        scale=1 / math.log(2),
        unit="bits/byte",
    )
    stored = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), state["params"])
    score = bits_per_byte(stored, held_out, config=config)
    out = args.out or args.run / "weights"
    save_directory(state["params"], config, out, max_positions=recipe.long_window)
    facts = training_facts(state, corpus, recipe) | {"bits_per_byte": score}
    if config.experts is not None:
        facts["load"] = load_lines(load_summary(router_load(stored, held_out, config=config)))
    if args.shape == "small":
        facts["agreement"] = agreement_lines(embedded_agreement(NetworkDraft(config), stored))
    write_card(out, args.shape, config, facts)
    print(f"held out: {score:.4f} bits per byte over {held_out.size} bytes; weights in {out}")


if __name__ == "__main__":
    main()
