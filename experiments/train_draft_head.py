"""Train the draft head of a network: `python -m experiments.train_draft_head [--model NAME --text FILE]`.

Stops and starts, as `python -m experiments.train_embedded` does. The network is frozen. A network of bytes learns from what the
embedded network was trained on, any other from a file of text, best one that it wrote itself; where that has only some hundred
thousand tokens, add --documentation, or the head learns it by heart. Takes about half an hour on two CPU cores.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
from pathlib import Path
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from experiments.model_cards import training_facts, write_card
from experiments.train_embedded.train import (
    PROMPT_TOKENS,
    PROMPTS,
    SEED,
    Recipe,
    agreement_lines,
    measure_agreement,
    optimizer,
    run_steps,
    sample_windows,
    source_files,
    standard_library,
    training_bytes,
)
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward_text
from jaxspec.models.draft_head import TargetEnds, head_forward, head_logits, init_head_params, target_ends
from jaxspec.models.embedded import model_place
from jaxspec.models.head_files import load_head, save_head
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.studies.measured.run_context import load_target
from jaxspec.text.windows import load_text, windows

# Training of a draft head on its target's hidden states and on its own predictions of them.


@dataclasses.dataclass(frozen=True)
class HeadRecipe(Recipe):
    """Everything that decides the head's weights, apart from target and text."""

    steps: int = 800
    depth: int = 5  # deepest token that is trained: 1 reads true hidden states alone
    root_every: int = 8  # places between two chains of predictions
    depth_discount: float = (
        0.8  # weight of a depth's loss over that of the one before: deeper tokens are drafted less often
    )
    feature_weight: float = 0.1  # of the hidden states' squared error beside the cross-entropy, in nats


def unroll(
    head: Params,
    config: DecoderConfig,
    ends: TargetEnds,
    tokens: Int[Array, "batch place_plus_1"],
    hidden: Float[Array, "batch place hidden"],
    *,
    offset: Int[Array, ""],
    depth: int,
    root_every: int,
    options: dict,
) -> list[tuple[Float[Array, "batch chain hidden"], Int[Array, " chain"]]]:
    """Predicted hidden states at each depth, and the places (of `hidden`) where they were predicted.

    Args:
        tokens: one more than there are hidden states.
        offset: first root, 0 to root_every − 1.
        depth: static; the first entry of the result holds all places.
        root_every: static.
        options: of `head_forward`: how it multiplies and attends.
    """
    batch, places = hidden.shape[:2]
    place = jnp.arange(places)
    batched = lambda x: jnp.broadcast_to(x, (batch, *x.shape))
    first = head_forward(
        head,
        config,
        ends=ends,
        tokens=tokens[:, 1:],
        hidden=hidden,
        positions=batched(place),
        mask=causal_mask(batch, places),
        **options,
    )
    result = [(first.hidden, place)]
    root = offset + root_every * jnp.arange((places - depth + 1) // root_every)
    own = jnp.eye(root.size, dtype=bool)
    seen = place[None, :] <= root[:, None]
    cache = first.cache
    state = first.hidden[:, root]
    for d in range(1, depth):
        at = root + d
        step = head_forward(
            head,
            config,
            ends=ends,
            tokens=tokens[:, at + 1],
            hidden=state,
            positions=batched(at),
            mask=batched(own),
            sources=[CachedKV(cache, batched(jnp.concatenate([seen, *[own] * (d - 1)], axis=1)))],
            **options,
        )
        cache = KVCache(
            key=jnp.concatenate([cache.key, step.cache.key], axis=4),
            value=jnp.concatenate([cache.value, step.cache.value], axis=3),
        )
        state = step.hidden
        result.append((state, at))
    return result


def _unit(x: Array) -> Array:
    """Scaled to a root mean square of 1: all that anyone reads of a hidden state."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def head_loss(
    head: Params,
    target: Params,
    config: DecoderConfig,
    target_config: DecoderConfig,
    tokens: Int[Array, "batch token"],
    offset: Int[Array, ""],
    recipe: HeadRecipe,
    frugal: bool,
) -> Float[Array, ""]:
    """KL divergence of the target's distribution from the head's in nats, plus the features' error, both over all depths."""
    options = dict(dot_dtype=jnp.bfloat16, frugal=True) if frugal else {}
    said = forward_text(target, target_config, tokens, **options)
    ends = target_ends(target)
    dot_dtype = options.get("dot_dtype")
    wanted, log_p = said.hidden[:, 1:], jax.nn.log_softmax(said.logits[:, 1:])
    depths = unroll(
        head,
        config,
        ends,
        tokens,
        said.hidden[:, :-1],
        offset=offset,
        depth=recipe.depth,
        root_every=recipe.root_every,
        options=options,
    )
    losses = []
    for predicted, place in depths:
        log_q = jax.nn.log_softmax(head_logits(predicted, ends, config, dot_dtype))
        kl = jnp.mean(jnp.sum(jnp.exp(log_p[:, place]) * (log_p[:, place] - log_q), axis=-1))
        error = jnp.mean((_unit(predicted) - _unit(wanted[:, place])) ** 2)
        losses.append(kl + recipe.feature_weight * error)
    weights = recipe.depth_discount ** np.arange(recipe.depth, dtype=np.float32)
    return jnp.sum(jnp.stack(losses) * weights) / weights.sum()


def make_head_step(recipe: HeadRecipe, config: DecoderConfig, target: Params, target_config: DecoderConfig):
    """The jitted, donated training step (head, optimiser state, (tokens, offset)) -> (head, optimiser state, loss)."""
    transform = optimizer(recipe)
    frugal = jax.default_backend() == "cpu"

    @jax.jit
    def step(head, opt_state, target, tokens, offset):
        loss, gradient = jax.value_and_grad(head_loss)(
            head, target, config, target_config, tokens, offset, recipe, frugal
        )
        updates, opt_state = transform.update(gradient, opt_state, head)
        return optax.apply_updates(head, updates), opt_state, loss

    return transform.init, lambda head, opt_state, batch: step(head, opt_state, target, *batch)


#: Characters of a docstring below which it has no sentences to speak of, and what has docstrings.
_SENTENCES = 400
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def documentation(root: Path) -> str:
    """English at hand with every interpreter: the help texts of Python's language reference, and the standard library's long
    docstrings.

    Args:
        root: folder of the standard library.
    """
    texts = list(topics.values())
    for path in source_files(root)[0]:
        nodes = ast.walk(ast.parse((root / path).read_bytes()))
        docstrings = (ast.get_docstring(node) or "" for node in nodes if isinstance(node, _DOCUMENTED))
        texts += [text for text in docstrings if len(text) >= _SENTENCES]
    return "\n\n".join(texts)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.train_draft_head", description=__doc__)
    parser.add_argument("--model", default="embedded", help="the target (default %(default)s)")
    parser.add_argument(
        "--text",
        help="file to learn from, as `jaxspec tune --text` reads it: its first half teaches, its second half measures; "
        "default: the standard library, for networks of bytes",
    )
    parser.add_argument(
        "--documentation",
        action="store_true",
        help="learn from the standard library's documentation too, beside --text",
    )
    parser.add_argument("--run", type=Path, default=Path("runs/train_draft_head"), help="folder of the checkpoints")
    parser.add_argument("--out", type=Path, help="folder for the head; default: inside --run, nothing is overwritten")
    parser.add_argument("--stdlib", type=Path, default=standard_library(), help="folder of .py files to learn from")
    parser.add_argument("--steps", type=int, default=HeadRecipe.steps, help="training steps (default %(default)s)")
    parser.add_argument("--tokens-per-step", type=int, default=HeadRecipe.tokens_per_step)
    parser.add_argument("--seed", type=int, default=HeadRecipe.seed)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--export-only", action="store_true", help="write the newest checkpoint's weights and stop")
    args = parser.parse_args()
    if args.documentation and args.text is None:
        parser.error("--documentation goes with --text: a network of bytes learns from the whole standard library")
    return args


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
        if args.documentation:
            documents = target.tokenizer.encode(documentation(args.stdlib).encode())
            corpus["library"] = np.concatenate([text.calibration, documents])
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
        print(
            f"head in {out}; measure it: jaxspec compare --model {args.model} --schemes none --lossy none --drafts {out}"
        )
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
