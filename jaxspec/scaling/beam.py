"""Beam search over steps: branches grow to the end of a step, a scorer of unfinished work keeps the best, copies grow on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.checks import check_count
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import on_host
from jaxspec.scaling.branches import grow, kept_branches, started
from jaxspec.scaling.sampling import Samples, check_settings, padded_prompt, token_ids
from jaxspec.speculate.sampling import SAMPLING, Decoding

__all__ = ["BeamSearch", "Beams", "ProcessScorer", "beam_search"]

#: From what each branch has generated so far to how promising it is; higher is better.
ProcessScorer = Callable[[Samples], Float[np.ndarray, " branch"]]


class Beams(NamedTuple):
    """Result of a search, and its effort.

    Attributes:
        samples: the beams, best first.
        scores: their last ones.
        steps: growths of all branches together, each with one round of scores.
        passes: of the network, each over one token of every branch: a growth takes as many as its longest branch grows.
        tokens: that all branches generated, those that were dropped included.
    """

    samples: Samples
    scores: Float[np.ndarray, " branch"]
    steps: int
    passes: int
    tokens: int


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """How to search.

    Attributes:
        beams: branches that are kept after a step.
        expansions: copies of each that grow the next step; beams x expansions branches grow together: the budget N.
        steps: most steps.
        step_tokens: most tokens of a step.
        num_tokens: most tokens of a branch.
        step_end: tokens that end a step; they belong to it.
    Raises:
        ValueError: a number below 1.
    Source: Snell et al. 2024, arXiv:2408.03314, Sec. 3; Scaling LLM test-time compute with mobile NPU, Sec. 2.
    """

    beams: int
    expansions: int
    steps: int
    step_tokens: int
    num_tokens: int
    step_end: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("beams", "expansions", "steps", "step_tokens", "num_tokens"):
            check_count(name, getattr(self, name))


def beam_search(
    params: Params,
    config: DecoderConfig,
    prompt: Int[np.ndarray, " token"],
    score: ProcessScorer,
    search: BeamSearch,
    *,
    seed: Key[Array, ""],
    prompt_id: int = 0,
    decoding: Decoding = SAMPLING,
    stop: Int[np.ndarray, " stop"] | None = None,
    done: Callable[[Samples], Bool[np.ndarray, " branch"]] | None = None,
) -> Beams:
    """Search for continuations of one prompt.

    After each step the `beams` branches with the highest scores stay (finished ones among them, as they are), and each is
    copied `expansions` times; copies of a finished branch do not grow. The search ends when all that stays is finished.

    Args:
        score: of what each branch has generated so far; NaN is below all numbers.
        stop: tokens that end a branch.
        done: which branches have ended although no token says so, asked after each step; None: none.
    Raises:
        ValueError: as for `sample_continuations`.
    """
    step_end = np.asarray(search.step_end, np.int32)
    check_settings(params, config, seed, decoding, stop, step_end)
    places, length = padded_prompt(prompt, config)
    pauses, ends, width = token_ids(step_end), token_ids(stop), search.beams * search.expansions
    number = jnp.arange(width)
    branches = started(params, places, length, number, config=config, room=search.num_tokens)
    settings = (seed, jnp.asarray(prompt_id), decoding.for_program(), jnp.asarray(search.step_tokens), pauses, ends)
    samples, kept, step, passes, tokens = None, np.zeros(search.beams), 0, 0, 0
    for step in range(search.steps):
        before = np.asarray(on_host(branches.length))
        branches = grow(params, branches, *settings, config=config)
        fields = branches.tokens, branches.length, branches.ended, branches.log_prob
        samples = Samples(*map(np.asarray, on_host(fields)))
        passes, tokens = passes + int(np.max(samples.length - before)), tokens + int(np.sum(samples.length - before))
        if done is not None:
            samples = samples._replace(stopped=samples.stopped | done(samples))
            branches = dataclasses.replace(branches, ended=jnp.asarray(samples.stopped))
        scores = np.nan_to_num(np.asarray(score(samples), np.float64), nan=-np.inf)
        # A stable order: of equal scores, the branch with the smaller number stays.
        best = _different(samples, np.argsort(-scores, kind="stable"), search.beams)
        samples, kept = Samples(*(part[best] for part in samples)), scores[best]
        full = samples.length >= search.num_tokens
        if np.all(samples.stopped | full) or step + 1 == search.steps:
            break
        copies = np.repeat(best, search.expansions)
        branches = kept_branches(branches, jnp.asarray(copies), number)
    assert samples is not None
    return Beams(samples, kept, step + 1, passes, tokens)


def _different(samples: Samples, order: np.ndarray, count: int) -> np.ndarray:
    """The first `count` branches of an order, equal texts only where there are no others."""
    seen, first, again = set(), [], []
    for branch in order:
        text = samples.tokens[branch, : samples.length[branch]].tobytes()
        (again if text in seen else first).append(branch)
        seen.add(text)
    return np.array((first + again)[:count])
