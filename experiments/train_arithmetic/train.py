"""Training of a network that does arithmetic in steps, and of one that judges its steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.train_embedded.train import Recipe, optimizer
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.scaling.sampling import sample_continuations
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, Problem, problems, right_steps, solution
from jaxspec.scaling.verifiers.judge import NO, YES

#: Of both networks: 0.35 M parameters.
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

#: Rows of each of the three parts of a step of the judge.
JUDGED_ROWS = 40

#: Share of slips that are in the number just worked out; the others may be anywhere in what is left.
_IN_RESULT = 0.7

#: What the schedule of the solver's learning rate is made for.
RECIPE = Recipe(steps=1200, tokens_per_step=ROW * ROWS, window=ROW, long_window=ROW)

#: Steps after which the solver stops, while the rate still falls: 84 % of its samples are right then. With a rate that falls to
#: zero within a hundred steps more, 93 % are, too many to show what more samples give.
SOLVER_STEPS = 900

#: The judge goes on from the solver, so its rate is smaller.
JUDGE_RECIPE = Recipe(
    steps=400,
    tokens_per_step=3 * ROW * JUDGED_ROWS,
    window=ROW,
    long_window=ROW,
    peak_learning_rate=0.008,
    warmup_steps=20,
)

#: Seeds of problems: training, what judges learn from, and what is held out draw apart.
TRAINING, JUDGING, HELD_OUT = 1, 2, 3


def solved_rows(step: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Problems with their solutions, "row place", and whether the next byte is to be learned; a function of the step."""
    drawn = problems(ROWS, seed=_mixed(TRAINING, seed, step))
    return text_rows(drawn, [solution(problem) for problem in drawn])


def _mixed(purpose: int, seed: int, step: int) -> int:
    return int(np.random.SeedSequence([purpose, seed, step]).generate_state(1)[0])


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
    found = sample_continuations(
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
    return prompt, found.texts()


class Judged(NamedTuple):
    """Answers and what a judge learns of them, "row place".

    Attributes:
        tokens: problems with their answers.
        targets: after a mark, whether all is right so far; elsewhere the right next byte, as a solver learns it.
        learned: where: at marks, and as far as the answer is the right one.
    """

    tokens: np.ndarray
    targets: np.ndarray
    learned: np.ndarray


def judged(drawn: list[Problem], completions: list[bytes]) -> Judged:
    """What a judge should say of these answers, and what should have stood there."""
    completions = [text[: ROW - len(problem.text)] for problem, text in zip(drawn, completions, strict=True)]
    tokens, _ = text_rows(drawn, completions)
    clean, learned = text_rows(drawn, [solution(problem) for problem in drawn])
    tokens, targets = tokens[:, :-1], clean[:, 1:].copy()
    # The place before the first wrong byte is the last that has a right next one.
    learned &= np.cumsum(tokens != clean[:, :-1], axis=1) == 0
    for row, (problem, text) in enumerate(zip(drawn, completions, strict=True)):
        mark = np.isin(tokens[row], [STEP_END[0], END[0]]) & (np.arange(ROW) >= len(problem.text))
        good, _ = right_steps(problem, text)
        targets[row, mark] = np.where(np.cumsum(mark)[mark] <= good, YES, NO)
        learned[row] |= mark
    return Judged(tokens, targets, learned)


def judged_samples(params: Params, count: int, seed: int, samples: int = 4) -> Judged:
    """A solver's own answers, judged."""
    asked, completions = [], []
    for number, problem in enumerate(problems(count, seed=_mixed(JUDGING, seed, 0))):
        _, texts = answers(params, problem, number, samples=samples, seed=seed)
        asked += [problem] * samples
        completions += [bytes(text.astype(np.uint8)) for text in texts]
    return judged(asked, completions)


def with_a_slip(problem: Problem, rng: np.random.Generator) -> bytes:
    """The right steps up to one in which one digit is wrong, mostly of the number worked out, and what follows from it."""
    steps = solution(problem)[:-1].split(STEP_END)
    number = int(rng.integers(len(steps)))
    left = bytearray(steps[number])
    digits = [place for place, byte in enumerate(left) if chr(byte).isdigit()]
    worked_out = digits[: len(re.match(rb"\d+", steps[number])[0])]  # type: ignore[index]
    place = int(rng.choice(worked_out if rng.random() < _IN_RESULT else digits))
    left[place] = ord("0") + (left[place] - ord("0") + int(rng.integers(1, 10))) % 10
    rest = solution(Problem(bytes(left) + STEP_END, 0))
    return STEP_END.join([*steps[:number], bytes(left)]) + (END if rest == END else STEP_END + rest)


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


def solver_batch(step: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the solver learns from in a step."""
    tokens, learned = solved_rows(step, seed)
    return tokens[:, :-1], tokens[:, 1:], learned


def judge_batch(samples: Judged, step: int, seed: int) -> tuple[np.ndarray, ...]:
    """What the judge learns from in a step: in equal parts, a solver's answers, right ones, and right ones with a slip."""
    rng = np.random.default_rng([seed, step])
    chosen = rng.integers(0, len(samples.tokens), JUDGED_ROWS)
    drawn = problems(2 * JUDGED_ROWS, seed=_mixed(JUDGING, seed, step + 1))
    right, slips = drawn[:JUDGED_ROWS], drawn[JUDGED_ROWS:]
    made = judged(drawn, [solution(one) for one in right] + [with_a_slip(one, rng) for one in slips])
    return tuple(np.concatenate([part[chosen], own]) for part, own in zip(samples, made, strict=True))
