"""Train the draft head of a network: `python -m experiments.train_draft_head [--model NAME --text FILE]`.

Stops and starts, as `python -m experiments.train_embedded` does. The network is frozen. A network of bytes learns from what the
embedded network was trained on, any other from a file of text, best one that it wrote itself. Takes about half an hour on two
CPU cores.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.draft_agreement import PROMPT_TOKENS, PROMPTS, SEED, agreement_lines, measure_agreement
from experiments.model_cards import training_facts, write_card
from experiments.train_draft_head.train import HeadRecipe, make_head_step
from experiments.train_embedded.corpus import sample_windows, standard_library, training_bytes
from experiments.train_embedded.loop import run_steps
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.draft_head import init_head_params
from jaxspec.models.embedded import model_place
from jaxspec.models.head_files import load_head, save_head
from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.studies.measured.run_context import load_target
from jaxspec.text.windows import load_text, windows


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_draft_head", description=__doc__)
    parser.add_argument("--model", default="embedded", help="the target (default %(default)s)")
    parser.add_argument(
        "--text",
        help="file to learn from, as `jaxspec tune --text` reads it: its first half teaches, its second half measures; "
        "default: the standard library, for networks of bytes",
    )
    parser.add_argument("--run", type=Path, default=Path("runs/train_draft_head"), help="folder of the checkpoints")
    parser.add_argument("--out", type=Path, help="folder for the head; default: inside --run, nothing is overwritten")
    parser.add_argument("--stdlib", type=Path, default=standard_library(), help="folder of .py files to learn from")
    parser.add_argument("--steps", type=int, default=HeadRecipe.steps, help="training steps (default %(default)s)")
    parser.add_argument("--tokens-per-step", type=int, default=HeadRecipe.tokens_per_step)
    parser.add_argument("--seed", type=int, default=HeadRecipe.seed)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--export-only", action="store_true", help="write the newest checkpoint's weights and stop")
    return parser.parse_args()


def main() -> None:
    """Train, or resume, then export and measure."""
    args = parse_arguments()
    warmup = min(HeadRecipe.warmup_steps, args.steps // 8)
    recipe = HeadRecipe(steps=args.steps, seed=args.seed, tokens_per_step=args.tokens_per_step, warmup_steps=warmup)
    target = load_target(args.model).loaded
    if args.text is None:
        text, corpus = load_text("stdlib", target.tokenizer), training_bytes(args.stdlib)
    else:
        text = load_text(args.text, target.tokenizer, chat=load_chat_template(model_place(args.model)))
        corpus = {"library": text.calibration}
    config = dataclasses.replace(target.config, num_layers=1)
    init, step_function = make_head_step(recipe, config, target.params, target.config)
    head = init_head_params(config, jax.random.key(recipe.seed))

    def batch_at(step):
        window = recipe.window_at(step)
        tokens = sample_windows(corpus, recipe.seed, step, recipe.tokens_per_step // window, window + 1)
        return tokens, np.int32(3 * step % recipe.root_every)  # every offset in turn, neighbours apart

    state = run_steps(
        args.run / "checkpoints",
        head,
        init(head),
        step_function,
        batch_at,
        steps=0 if args.export_only else recipe.steps,
        checkpoint_every=args.checkpoint_every,
        scale=1.0,
        unit="nats of KL and feature error",
    )
    out = args.out or args.run / "weights"
    save_head(state["params"], config, out, target=target.params, max_positions=recipe.long_window)
    if args.text is not None:
        print(f"head in {out}; measure it: jaxspec evaluate --model {args.model} --draft {out} --text {args.text}")
        return
    # As it is stored, as it will be read: bfloat16, computed in float32.
    stored = load_head(out, target, dtype=jnp.float32)
    prompts = windows(text.held_out, PROMPTS, PROMPT_TOKENS, SEED)
    params = HeadDraftParams(head=stored.params, ends=stored.ends)
    agreement = measure_agreement(target.params, target.config, HeadDraft(stored.config), params, prompts)
    facts = training_facts(state, corpus, recipe) | {"agreement": agreement_lines(agreement)}
    write_card(out, "head", config, facts)
    print(f"held out: {facts['agreement']}\nhead in {out}")


if __name__ == "__main__":
    main()
