"""Prompts decoded in several ways at their true widths, timed in turns; and the time of the parts of a cycle.

Decoding is one compiled loop, in which nothing can be timed. Its parts are differences between whole programs:

* a *cycle* is what decoding to the end takes beyond decoding to the first cycle, over the cycles between them, so that the
  prompt and the call itself drop out;
* a *verification* is the cycle of a program of the same width whose draft is never asked and remembers nothing: the target's
  step, the test of acceptance, the commitment of keys and values, a turn of the loop;
* a *draft step* is what a cycle takes beyond that verification, over the draft's steps in it. So it has its share of what the
  draft does with the tokens that are committed, and parts add up to their cycle. A program of the draft alone would leave
  out what target and draft take from each other's caches.

Decoding without speculation is a program of width 1, without a draft.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import split_rows
from jaxspec.speculate.candidates import CandidateLaw
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.no_draft import NoDraft
from jaxspec.speculate.engine import Decoded, autoregressive_tree, decode
from jaxspec.speculate.expansion import TreeLimits, chain_limits, tree_limits
from jaxspec.speculate.ragged import generated_tokens
from jaxspec.speculate.sampling import Decoding
from jaxspec.speculate.timing.clock import interleave
from jaxspec.trees.public_trees import chain_tree
from jaxspec.trees.topology import Tree

__all__ = ["AUTOREGRESSIVE", "TimedWay", "Way", "chain_way", "time_ways", "timed_prompts", "tree_way"]

#: Name of decoding without speculation among the ways.
AUTOREGRESSIVE = "autoregressive"

#: Fewest prompts that are timed, where there are as many.
_LEAST_PROMPTS = 8


class Way(NamedTuple):
    """A way to decode.

    Attributes:
        draft: None: no speculation.
        limits: of the tree alone, so that verifications have their true width.
        law: see `decode`.
    """

    draft: ReadyDraft | None
    tree: Tree
    limits: TreeLimits
    law: CandidateLaw = "top"


def tree_way(draft: ReadyDraft, tree: Tree) -> Way:
    """Decoding with a tree of the draft's likeliest tokens; the tree has no padding."""
    return Way(draft, tree, tree_limits(tree))


def chain_way(draft: ReadyDraft, draft_length: int, decoding: Decoding) -> Way:
    """Decoding with a chain of `draft_length` tokens, at least 1; the draft samples when the target does."""
    width = draft_length + 1
    return Way(draft, chain_tree(draft_length, width), chain_limits(width), "top" if decoding.greedy else "sampled")


def _undrafted(limits: TreeLimits, law: CandidateLaw, draft: ReadyDraft | None) -> Way:
    return Way(draft, autoregressive_tree(limits), limits, law)


@dataclasses.dataclass(frozen=True)
class TimedWay:
    """Times and counts of one way; entry r of all samples is of round r, whatever the way. Times are of a whole batch.

    Attributes:
        cycle_s: of a cycle; without speculation, of a step.
        verify_s: of a verification; without speculation, of a step.
        cycle_over_step: cycle over a step without speculation, each of the same moment.
        steps: draft steps in a cycle.
        tokens, turns: generated while time was taken, and turns of the loop; a batch turns until its last sequence ends.
        tokens_per_cycle: of each sequence, until it ends.
        compile_s: of the first call beyond a later one.
        agree: share of tokens that equal those without speculation; products of other widths differ in their last bits.
    """

    cycle_s: Float[np.ndarray, " repeat"]
    verify_s: Float[np.ndarray, " repeat"]
    cycle_over_step: Float[np.ndarray, " repeat"]
    steps: int
    tokens: int
    turns: int
    tokens_per_cycle: float
    compile_s: float
    agree: float

    @property
    def draft_step_s(self) -> Float[np.ndarray, " repeat"]:
        """Of a draft step; 0 where nothing is drafted."""
        return (self.cycle_s - self.verify_s) / max(self.steps, 1)

    @property
    def tokens_per_turn(self) -> float:
        """Of all sequences together."""
        return self.tokens / self.turns if self.turns else float("nan")

    @property
    def tokens_per_s(self) -> Float[np.ndarray, " repeat"]:
        """Of all sequences together, behind their first cycle."""
        return self.tokens_per_turn / self.cycle_s

    def speedup(self, alone: TimedWay) -> Float[np.ndarray, " repeat"]:
        """Over decoding without speculation."""
        return self.tokens_per_turn / alone.tokens_per_turn / self.cycle_over_step


def timed_prompts(prompts: int, batch: int) -> int:
    """How many of the prompts are timed: whole batches, at least 8 prompts where there are as many.

    Raises:
        ValueError: fewer prompts than a batch has.
    """
    if prompts < batch:
        raise ValueError(f"{prompts} prompts came for batches of {batch}; give as many as a batch has")
    return batch * min(prompts // batch, -(-_LEAST_PROMPTS // batch))


def _nothing() -> None:
    """No progress is shown."""


def time_ways(
    target: Params,
    config: DecoderConfig,
    prompts: np.ndarray,
    ways: Mapping[str, Way],
    *,
    num_tokens: int,
    decoding: Decoding,
    seed: int,
    batch: int,
    repeats: int,
    lengths: np.ndarray | None = None,
    stop: Sequence[int] = (),
    advance: Callable[[], None] = _nothing,
) -> dict[str, TimedWay]:
    """Time decoding in each way, and without speculation, which comes first under `AUTOREGRESSIVE`.

    Args:
        prompts: of which the first `timed_prompts` are decoded, `batch` at a time.
        num_tokens: of each prompt, more than a cycle can yield; times of others are not numbers.
        repeats: rounds.
        lengths, stop, others: as for `decode`.
        advance: called `len(ways) + 1` times and more for each batch, and once per batch and round.
    Raises:
        ValueError: see `decode`, `timed_prompts`.
    """
    count, places = timed_prompts(len(prompts), batch), prompts.shape[1]
    lengths = np.full(count, places, np.int32) if lengths is None else lengths
    starts = range(0, count, batch)
    unasked = ReadyDraft(NoDraft(config.vocab_size), None)
    every: dict[Any, Way] = {AUTOREGRESSIVE: _undrafted(chain_limits(1), "top", None), **ways}
    # Verifications alone, by what is compiled.
    every |= {(way.limits, way.law): _undrafted(way.limits, way.law, unasked) for way in ways.values()}

    def call(way: Way, start: int, tokens: int) -> Callable[[], Decoded]:
        rows = np.arange(start, start + batch)
        these, ids, of_these = split_rows(target, *(jnp.asarray(x) for x in (prompts[rows], rows, lengths[rows])))
        draft, params = way.draft or (None, None)
        key, ends = jax.random.key(seed), jnp.asarray(stop, jnp.int32)

        def run() -> Decoded:
            given = (target, params, these, ids, way.tree, key, decoding)
            options = {"draft": draft, "config": config, "num_tokens": tokens, "room": num_tokens}
            return decode(*given, law=way.law, limits=way.limits, lengths=of_these, stop=ends, **options)

        return run

    blocks = [
        {(name, start): [call(way, start, tokens) for tokens in (1, num_tokens)] for name, way in every.items()}
        for start in starts
    ]
    clocked = interleave(blocks, repeats, seed=seed, advance=advance)

    def counted(name: Any, field: str, over: Callable[[Any], Any]) -> np.ndarray:
        """What each batch counts beyond its first cycle."""
        ends = [[int(over(getattr(end, field))) for end in clocked.results[name, start]] for start in starts]
        return np.diff(np.array(ends), axis=1)[:, 0]

    def cycles_s(name: Any) -> Float[np.ndarray, "batch repeat"]:
        seconds = np.stack([np.diff(clocked.seconds[name, start], axis=1)[:, 0] for start in starts])
        turns = counted(name, "cycles", jnp.max)[:, None]
        return np.where(turns > 0, seconds / np.maximum(turns, 1), np.nan)

    def put_out(name: Any) -> np.ndarray:
        ends = [clocked.results[name, start][1] for start in starts]
        parts = [[np.asarray(end.tokens), np.asarray(end.generated)] for end in ends]
        tokens, generated = (np.concatenate(part) for part in zip(*parts, strict=True))
        return generated_tokens(tokens, lengths[:count], generated, num_tokens)

    alone_s, alone = cycles_s(AUTOREGRESSIVE), put_out(AUTOREGRESSIVE)

    def found(name: Any, verify: Any) -> TimedWay:
        here_s, way = cycles_s(name), every[name]
        ends = [clocked.results[name, start][1] for start in starts]
        first = (name, starts[0])
        return TimedWay(
            cycle_s=_middle(here_s),
            verify_s=_middle(cycles_s(verify)),
            cycle_over_step=_middle(here_s / alone_s),
            steps=0 if way.draft is None else int(way.tree.depth.max()),
            tokens=int(counted(name, "generated", jnp.sum).sum()),
            turns=int(counted(name, "cycles", jnp.max).sum()),
            tokens_per_cycle=sum(int(end.generated.sum()) for end in ends) / sum(int(end.cycles.sum()) for end in ends),
            compile_s=max(0.0, clocked.first_s[first][0] - float(np.median(clocked.seconds[first][:, 0]))),
            agree=float(np.mean(put_out(name)[alone >= 0] == alone[alone >= 0])),
        )

    verifies = {name: (way.limits, way.law) for name, way in ways.items()}
    return {name: found(name, verify) for name, verify in {AUTOREGRESSIVE: AUTOREGRESSIVE, **verifies}.items()}


def _middle(samples: Float[np.ndarray, "batch repeat"]) -> Float[np.ndarray, " repeat"]:
    """Median over the batches that took more than one cycle."""
    known = np.isfinite(samples).any(axis=1)
    return np.median(samples[known], axis=0) if known.any() else np.full(samples.shape[1], np.nan)
