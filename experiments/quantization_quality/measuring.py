"""Scores of one variant of a network: of each window of text, and of each arithmetic problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from experiments.quantization_quality.variants import Variant
from experiments.train_arithmetic.train import HELD_OUT, text_rows
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.hf_load import LoadedModel
from jaxspec.scaling.tasks.arithmetic import problems, solution

__all__ = ["Solutions", "TaskScores", "Text", "TextScores", "held_out_solutions", "task_scores", "text_scores"]

#: Rows of one program.
_AT_ONCE = 8


class Text(NamedTuple):
    """Windows of held-out text.

    Attributes:
        rows: tokens, "window place"; all but the first are predicted.
        num_bytes: of the predicted tokens of each window.
    """

    rows: Int[np.ndarray, "window place"]
    num_bytes: Int[np.ndarray, " window"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, "window place"], model: LoadedModel) -> Text:
        """Of windows of a model's tokens."""
        return cls(rows, np.array([len(model.tokenizer.decode(row[1:]).encode()) for row in rows]))


class TextScores(NamedTuple):
    """What a network makes of text.

    Attributes:
        bits: needed for each window.
        likeliest: next token at each place.
    """

    bits: Float[np.ndarray, " window"]
    likeliest: Int[np.ndarray, "window place"]


class Solutions(NamedTuple):
    """Arithmetic problems with their right steps.

    Attributes:
        tokens: "problem place"; learned: places whose next token belongs to the solution.
    """

    tokens: Int[np.ndarray, "problem place"]
    learned: Bool[np.ndarray, "problem next_place"]


class TaskScores(NamedTuple):
    """What a network makes of arithmetic.

    Attributes:
        greedy: whether greedy decoding gives all right steps: their tokens are the likeliest ones, each after the others.
        chance: that one sample at temperature 1 is the right steps.
    """

    greedy: Bool[np.ndarray, " problem"]
    chance: Float[np.ndarray, " problem"]


def held_out_solutions(count: int) -> Solutions:
    """Problems that no network was trained on."""
    drawn = problems(count, seed=HELD_OUT)
    return Solutions(*text_rows(drawn, [solution(problem) for problem in drawn]))


def text_scores(
    params: Params, config: DecoderConfig, text: Text, variant: Variant, advance: Callable[[], None]
) -> TextScores:
    """Of all windows, a few at a time.

    Args:
        params: of the variant. advance: called after each few windows.
    """
    nats, likeliest = [], []
    for loss, best in _predicted(params, config, text.rows, variant, advance):
        nats.append(loss.sum(axis=-1))
        likeliest.append(best)
    return TextScores(np.concatenate(nats) / math.log(2), np.concatenate(likeliest))


def task_scores(
    params: Params, config: DecoderConfig, solutions: Solutions, variant: Variant, advance: Callable[[], None]
) -> TaskScores:
    """Of all problems, a few at a time; arguments as for `text_scores`."""
    found = list(_predicted(params, config, solutions.tokens, variant, advance))
    loss, best = (np.concatenate(parts) for parts in zip(*found, strict=True))
    right = (best == solutions.tokens[:, 1:]) | ~solutions.learned
    return TaskScores(right.all(axis=-1), np.exp(-np.sum(loss * solutions.learned, axis=-1)))


def _predicted(params: Params, config: DecoderConfig, rows: np.ndarray, variant: Variant, advance: Callable[[], None]):
    """(loss in nats, likeliest token), "row place", of parts of the rows."""
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        filled = np.pad(part, ((0, _AT_ONCE - len(part)), (0, 0)))
        loss, best = _program(params, jnp.asarray(filled), config=config, attend=variant.attend)
        advance()
        yield np.asarray(loss, np.float64)[: len(part)], np.asarray(best)[: len(part)]


@partial(jax.jit, static_argnames=("config", "attend"))
def _program(
    params: Params, rows: Int[Array, "row place"], *, config: DecoderConfig, attend: Any
) -> tuple[Float[Array, "row next_place"], Int[Array, "row next_place"]]:
    logits = forward_text(params, config, rows[:, :-1], attend=attend).logits
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:])
    return loss, jnp.argmax(logits, axis=-1)


def calls(count: int) -> int:
    """How often `advance` is called over so many rows."""
    return -(-count // _AT_ONCE)
