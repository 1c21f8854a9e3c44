"""Beam search over steps: branches grow to the end of a step, a scorer of unfinished work keeps the best, copies grow on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxspec.checks import check_count
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.scaling.branches import grow, kept_branches, started
from jaxspec.scaling.sampling import Samples, check_settings, padded_prompt, token_ids
from jaxspec.speculate.sampling import SAMPLING, Decoding

__all__ = ["BeamSearch", "ProcessScorer", "beam_search"]

#: From the tokens that each branch has generated so far to how promising it is; higher is better.
ProcessScorer = Callable[[Sequence[Int[np.ndarray, " token"]]], Float[np.ndarray, " branch"]]


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """How to search.

    Attributes:
        beams: branches that are kept after a step.
        expansions: copies of each that grow the next step; beams x expansions branches grow together: the budget N.
        steps: most steps.
        step_tokens: most tokens of a step.
        num_tokens: most tokens of a branch.
    Raises:
        ValueError: a number below 1.
    Source: Snell et al. 2024, arXiv:2408.03314, Sec. 3; Scaling LLM test-time compute with mobile NPU, Sec. 2.
    """

    beams: int
    expansions: int
    steps: int
    step_tokens: int
    num_tokens: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_count(field.name, getattr(self, field.name))


def beam_search(
    params: Params,
    config: DecoderConfig,
    prompt: Int[np.ndarray, " token"],
    score: ProcessScorer,
    search: BeamSearch,
    *,
    seed: Key[Array, ""],
    step_end: Int[np.ndarray, " pause"],
    prompt_id: int = 0,
    decoding: Decoding = SAMPLING,
    stop: Int[np.ndarray, " stop"] | None = None,
) -> tuple[Samples, Float[np.ndarray, " branch"]]:
    """Search for continuations of one prompt.

    After each step the `beams` branches with the highest scores stay (finished ones among them, as they are), and each is
    copied `expansions` times; copies of a finished branch do not grow. The search ends when all that stays is finished.

    Args:
        score: of what each branch has generated so far; NaN is below all numbers.
        step_end: tokens that end a step; they belong to it.
        stop: tokens that end a branch.
    Returns:
        the beams, best first, and their last scores.
    Raises:
        ValueError: as for `sample_continuations`.
    """
    check_settings(params, config, seed, decoding, stop, step_end)
    places, length = padded_prompt(prompt, config)
    pauses, ends, width = token_ids(step_end), token_ids(stop), search.beams * search.expansions
    number = jnp.arange(width)
    branches = started(params, places, length, number, config=config, room=search.num_tokens)
    settings = (seed, jnp.asarray(prompt_id), decoding.for_program(), jnp.asarray(search.step_tokens), pauses, ends)
    found, kept = None, np.zeros(search.beams)
    for step in range(search.steps):
        branches = grow(params, branches, *settings, config=config)
        found = Samples(*(np.asarray(x) for x in (branches.tokens, branches.length, branches.ended, branches.log_prob)))
        scores = np.nan_to_num(np.asarray(score(found.texts()), np.float64), nan=-np.inf)
        # A stable order: of equal scores, the branch with the smaller number stays.
        best = _different(found, np.argsort(-scores, kind="stable"), search.beams)
        found, kept = Samples(*(part[best] for part in found)), scores[best]
        full = found.length >= search.num_tokens
        if np.all(found.stopped | full) or step + 1 == search.steps:
            break
        copies = np.repeat(best, search.expansions)
        branches = kept_branches(branches, jnp.asarray(copies), number)
    assert found is not None
    return found, kept


def _different(found: Samples, order: np.ndarray, count: int) -> np.ndarray:
    """The first `count` branches of an order, equal texts only where there are no others."""
    seen, first, again = set(), [], []
    for branch in order:
        text = found.tokens[branch, : found.length[branch]].tobytes()
        (again if text in seen else first).append(branch)
        seen.add(text)
    return np.array((first + again)[:count])
