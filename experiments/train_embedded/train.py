"""Training of the embedded networks: the schedule, the optimiser, one step, and the held-out score."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax.contrib import MuonDimensionNumbers, muon

from jaxspec.models.config import MATRIX_KINDS, DecoderConfig
from jaxspec.models.decoder import Params, forward_text

#: The embedded network's shape. 3.1 M parameters: 6.2 MB in bfloat16, and a forward pass that two CPU cores can afford.
EMBEDDED = DecoderConfig(
    vocab_size=256,
    hidden_size=256,
    intermediate_size=704,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
)

#: A draft for it that shares nothing with it but the alphabet: a tenth of the parameters. Two layers, since one cannot
#: look up what followed the last time, which is what code repeats.
SMALL = DecoderConfig(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=192,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, apart from the text."""

    steps: int = 2200
    tokens_per_step: int = 8192
    window: int = 256  # bytes; short windows first: attention is half the cost of a step on CPUs
    long_window: int = 512
    long_from: float = 0.85  # share of the steps after which windows are long
    peak_learning_rate: float = 0.02  # of Muon; Adam (embeddings, norms, head) runs at a fifth of it
    warmup_steps: int = 100
    decay_from: float = 0.65  # share of the steps after which the rate falls linearly to zero
    weight_decay: float = 0.02
    seed: int = 0

    def window_at(self, step: int) -> int:
        """Bytes per window at a step."""
        return self.long_window if step >= self.long_from * self.steps else self.window


#: What --shape may be.
SHAPES = {"embedded": EMBEDDED, "small": SMALL}
RECIPES = {"embedded": Recipe(), "small": Recipe(steps=1700)}


def schedule(recipe: Recipe) -> optax.Schedule:
    """Warm-up, plateau, linear decay to zero: the plateau's checkpoints can be trained on for longer."""
    decay_start = int(recipe.decay_from * recipe.steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, recipe.peak_learning_rate, recipe.warmup_steps),
            optax.constant_schedule(recipe.peak_learning_rate),
            optax.linear_schedule(recipe.peak_learning_rate, 0.0, recipe.steps - decay_start),
        ],
        [recipe.warmup_steps, decay_start],
    )


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Muon for the matrices of layers (and of a draft head), Adam for the rest (Jordan et al. 2024), global clipping at 1."""
    rate = schedule(recipe)

    def dimensions(params: Any) -> Any:
        specs: dict[Any, Any] = dict.fromkeys(MATRIX_KINDS, MuonDimensionNumbers(reduction_axis=2, output_axis=1))
        specs["fc"] = MuonDimensionNumbers(reduction_axis=1, output_axis=0)  # of a draft head, which has one
        return jax.tree_util.tree_map_with_path(lambda path, _: specs.get(getattr(path[-1], "key", None)), params)

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        muon(
            rate,
            weight_decay=recipe.weight_decay,
            adam_learning_rate=lambda step: 0.2 * rate(step),
            adam_b2=0.99,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def mean_loss(params: Params, tokens: jax.Array, frugal: bool, config: DecoderConfig = EMBEDDED) -> jax.Array:
    """Mean next-byte cross-entropy in nats over a batch of windows, operands of products in bfloat16."""
    options = dict(dot_dtype=jnp.bfloat16, frugal=True) if frugal else {}
    logits = forward_text(params, config, tokens[:, :-1], **options).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def make_step(recipe: Recipe, config: DecoderConfig = EMBEDDED):
    """The jitted, donated training step (params, optimiser state, tokens) -> (params, optimiser state, loss)."""
    transform = optimizer(recipe)
    frugal = jax.default_backend() == "cpu"

    def step(params, opt_state, tokens):
        loss, gradient = jax.value_and_grad(mean_loss)(params, tokens, frugal, config)
        updates, opt_state = transform.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return transform.init, jax.jit(step, donate_argnums=(0, 1))


def bits_per_byte(
    params: Params,
    text: np.ndarray,
    window: int = 512,
    stride: int = 256,
    batch: int = 16,
    config: DecoderConfig = EMBEDDED,
) -> float:
    """Held-out cross-entropy of `text`, in bits per byte, float32.

    Windows overlap: each byte is scored once, with at least window − stride bytes of context (but for the first ones).
    """
    starts = np.arange(0, text.size - 1, stride)
    padded = np.pad(text.astype(np.int32), (window - stride, window + 1))
    # Row r scores the `stride` bytes that follow its start; what stands before them is context.
    rows = np.stack([padded[s : s + window + 1] for s in starts])
    scored = np.stack([(s + 1 + np.arange(stride)) < text.size for s in starts])

    @jax.jit
    def nats(params, rows, scored):
        logits = forward_text(params, config, rows[:, :-1]).logits[:, -stride:]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:][:, -stride:])
        return jnp.sum(loss * scored)

    missing = -len(rows) % batch
    rows = np.concatenate([rows, np.zeros((missing, window + 1), np.int32)])
    scored = np.concatenate([scored, np.zeros((missing, stride), bool)])
    chunks = range(0, len(rows), batch)
    total = sum(float(nats(params, rows[i : i + batch], scored[i : i + batch])) for i in chunks)
    return total / math.log(2) / (text.size - 1)
