"""Training of a network that does arithmetic in steps, and of a better one that judges its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.train_embedded.train import Recipe, optimizer
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.scaling.sampling import sample_continuations
from jaxspec.scaling.tasks.arithmetic import END, Problem, problems, solution

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
