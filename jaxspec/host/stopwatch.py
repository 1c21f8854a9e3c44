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
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxspec.checks import check_count
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import split_rows
from jaxspec.speculate.chunks import Prompts, generated_tokens
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.no_draft import NoDraft
from jaxspec.speculate.engine import Decoded, autoregressive_tree, decode
from jaxspec.speculate.expansion import CandidateLaw, TreeLimits, chain_limits, tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees.public_trees import chain_tree
from jaxspec.trees.topology import Tree

__all__ = [
    "AUTOREGRESSIVE",
    "BELIEVABLE",
    "SHARE",
    "Calls",
    "Clocked",
    "CountedWay",
    "RepeatStatistics",
    "TimedWay",
    "Way",
    "chain_way",
    "interleave",
    "noise_of",
    "repeat_statistics",
    "time_ways",
    "timed_prompts",
    "tree_way",
]


Name = TypeVar("Name", bound=Hashable)

#: What is timed one after the other under one name; each returns arrays, or trees of them.
Calls = Sequence[Callable[[], Any]]


class Clocked(NamedTuple, Generic[Name]):
    """Seconds and results of calls.

    Attributes:
        first_s: of each call's first time, which compiles.
        seconds: of the timed ones; entry r of all is of the same round.
        results: of each call.
    """

    first_s: dict[Name, list[float]]
    seconds: dict[Name, Float[np.ndarray, "repeat call"]]
    results: dict[Name, list[Any]]


def _nothing() -> None:
    """No progress is shown."""


def interleave(
    blocks: Sequence[Mapping[Name, Calls]],
    repeats: int,
    *,
    seed: int = 0,
    warm: Callable[[Mapping[Name, list[Any]]], None] = lambda results: None,
    advance: Callable[[], None] = _nothing,
    clock: Callable[[], float] = time.perf_counter,
) -> Clocked[Name]:
    """Warm all calls up, then time them in rounds; results are awaited.

    Args:
        blocks: what is compared, by names that no two share; a round goes through one block after the other, and through each
            in an order of its own.
        seed: of that order.
        warm: called with the results before anything is timed.
        advance: called for each name when it is warm, and after each block of each round.
    Raises:
        ValueError: repeats below 1.
    """
    check_count("repeats", repeats)
    rng = np.random.default_rng(seed)

    def timed(call: Callable[[], Any]) -> tuple[float, Any]:
        started = clock()
        result = jax.block_until_ready(call())
        return clock() - started, result

    clocked: Clocked[Name] = Clocked({}, {}, {})
    for block in blocks:
        for name, calls in block.items():
            first = [timed(call) for call in calls]
            clocked.first_s[name], clocked.results[name] = [pair[0] for pair in first], [pair[1] for pair in first]
            clocked.seconds[name] = np.zeros((repeats, len(calls)))
            advance()
    warm(clocked.results)
    for repeat in range(repeats):
        for block in blocks:
            names = list(block)
            for place in rng.permutation(len(names)):
                name = names[place]
                clocked.seconds[name][repeat] = [timed(call)[0] for call in block[name]]
            advance()
    return clocked


#: Share of the repeats that lie within an interval.
SHARE = 0.9

#: Largest relative standard error of a median that is believed.
BELIEVABLE = 0.03

#: Standard deviations of a normal distribution in a median absolute deviation, and of a median in one of a mean.
_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533

#: Fewer samples have no median absolute deviation worth the name.
_FEW = 5


class RepeatStatistics(NamedTuple):
    """Median of repeats, and the interval in which 90 % of them lie; what is not known is not a number."""

    median: float
    low: float
    high: float


def repeat_statistics(samples: Float[np.ndarray, " repeat"]) -> RepeatStatistics:
    """Median and interval of those samples that are numbers.

    Args:
        samples: of what is never negative. Negative ones are differences of times that are lost in their noise, infinite ones
            are rates that such a time allows, −infinite ones ratios over such a time: they have their place in the order, and
            an end of the interval that falls on them is not known.
    """
    known = np.sort(np.asarray(samples)[~np.isnan(samples)])
    finite = np.isfinite(known)
    if not finite.any():
        return RepeatStatistics(math.nan, math.nan, math.nan)
    places = [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2]
    bounded = np.clip(known, known[finite][0], known[finite][-1])  # infinities have no weighted mean with a neighbour
    values = np.quantile(bounded, places)
    neighbours = (np.quantile(known, places, method=side) for side in ("lower", "higher"))
    certain = np.all([np.isfinite(each) for each in neighbours], axis=0) & (values >= 0.0)
    low, median, high = (float(value) if sure else math.nan for value, sure in zip(values, certain, strict=True))
    return RepeatStatistics(low=low, median=median, high=high)


def noise_of(samples: Float[np.ndarray, " repeat"]) -> float:
    """Relative standard error of the median; infinite of fewer than 3 known samples, and of a median that is not positive.

    By the median absolute deviation, which outliers leave alone; by the whole range where samples are too few for it.
    """
    known = np.asarray(samples)[~np.isnan(samples)]
    median = repeat_statistics(known).median
    if known.size < 3 or not median > 0.0:
        return math.inf
    by_median = lambda: _DEVIATION * np.median(np.abs(known - median))
    deviation = np.ptp(known) / 2.0 if known.size < _FEW else by_median()
    return float(_OF_MEDIAN * deviation / math.sqrt(known.size) / median)


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
class CountedWay:
    """Counts of one way to decode, which do not depend on the clock.

    Attributes:
        steps: draft steps in a cycle.
        tokens, turns: generated behind the first cycle, and turns of the loop; a batch turns until its last sequence ends.
        tokens_per_cycle: of each sequence, until it ends.
        agree: share of tokens that equal those without speculation; products of other widths differ in their last bits.
    """

    steps: int
    tokens: int
    turns: int
    tokens_per_cycle: float
    agree: float

    @property
    def tokens_per_turn(self) -> float:
        """Of all sequences together."""
        return self.tokens / self.turns if self.turns else float("nan")


@dataclasses.dataclass(frozen=True)
class TimedWay(CountedWay):
    """Times and counts of one way; entry r of all samples is of round r, whatever the way. Times are of a whole batch.

    Times are differences of programs, so that short ones come out negative on a busy machine. Their rates are infinite.

    Attributes:
        cycle_s: of a cycle; without speculation, of a step.
        verify_s: of a verification; without speculation, of a step.
        cycle_over_step: cycle over a step without speculation, each of the same moment; infinite where the step, not a number
            where both are lost in the noise of their programs.
        compile_s: of the first call beyond a later one.
    """

    cycle_s: Float[np.ndarray, " repeat"]
    verify_s: Float[np.ndarray, " repeat"]
    cycle_over_step: Float[np.ndarray, " repeat"]
    compile_s: float

    @property
    def draft_step_s(self) -> Float[np.ndarray, " repeat"]:
        """Of a draft step; 0 where nothing is drafted."""
        return (self.cycle_s - self.verify_s) / max(self.steps, 1)

    @property
    def tokens_per_s(self) -> Float[np.ndarray, " repeat"]:
        """Of all sequences together, behind their first cycle."""
        return _rate(self.tokens_per_turn, self.cycle_s)

    def speedup(self, alone: TimedWay) -> Float[np.ndarray, " repeat"]:
        """Over decoding without speculation; −infinite where its step is lost in noise, so that nothing bounds it below."""
        ratio = _rate(self.tokens_per_turn / alone.tokens_per_turn, self.cycle_over_step)
        return np.where(np.isposinf(self.cycle_over_step), -np.inf, ratio)


def timed_prompts(prompts: int, batch: int) -> int:
    """Number of prompts that are timed: whole batches, at least 8 prompts where there are as many.

    Raises:
        ValueError: fewer prompts than a batch has.
    """
    if prompts < batch:
        raise ValueError(f"{prompts} prompts came for batches of {batch}; give as many as a batch has")
    return batch * min(prompts // batch, -(-_LEAST_PROMPTS // batch))


def time_ways(
    target: Params,
    config: DecoderConfig,
    prompts: Prompts,
    ways: Mapping[str, Way],
    *,
    batch: int,
    repeats: int,
    counted: Callable[[dict[str, CountedWay]], None] = lambda ways: None,
    advance: Callable[[], None] = _nothing,
) -> dict[str, TimedWay]:
    """Time decoding in each way, and without speculation, which comes first under `AUTOREGRESSIVE`.

    Args:
        prompts: of which the first `timed_prompts` are decoded, `batch` at a time. Where their number of tokens is not more
            than a cycle can yield, times are no numbers.
        repeats: rounds.
        counted: called before anything is timed.
        advance: called `len(ways) + 1` times and more for each batch, and once per batch and round.
    Raises:
        ValueError: see `decode`, `timed_prompts`.
    """
    count, num_tokens, lengths = timed_prompts(len(prompts.tokens), batch), prompts.num_tokens, prompts.known_lengths
    starts = range(0, count, batch)
    unasked = ReadyDraft(NoDraft(config.vocab_size), None)
    every: dict[Any, Way] = {AUTOREGRESSIVE: _undrafted(chain_limits(1), "top", None), **ways}
    # Verifications alone, by what is compiled.
    every |= {(way.limits, way.law): _undrafted(way.limits, way.law, unasked) for way in ways.values()}

    def call(way: Way, start: int, tokens: int) -> Callable[[], Decoded]:
        rows = np.arange(start, start + batch)
        these, ids, of_these = split_rows(
            target, *(jnp.asarray(x) for x in (prompts.tokens[rows], rows, lengths[rows]))
        )
        draft, params = way.draft or (None, None)
        key, ends = jax.random.key(prompts.seed), jnp.asarray(prompts.stop, jnp.int32)

        def run() -> Decoded:
            given = (target, params, Request(these, ids, key, tokens, of_these, ends), way.tree, prompts.decoding)
            options = {"draft": draft, "config": config, "room": num_tokens}
            return decode(*given, law=way.law, limits=way.limits, **options)

        return run

    blocks = [
        {(name, start): [call(way, start, tokens) for tokens in (1, num_tokens)] for name, way in every.items()}
        for start in starts
    ]
    verifies = {AUTOREGRESSIVE: AUTOREGRESSIVE} | {name: (way.limits, way.law) for name, way in ways.items()}

    def count_all(results: Mapping[Any, list[Decoded]]) -> dict[str, CountedWay]:
        ends = {name: [results[name, start] for start in starts] for name in verifies}
        alone = _generated(ends[AUTOREGRESSIVE], lengths, num_tokens)
        steps = {name: 0 if every[name].draft is None else int(every[name].tree.depth.max()) for name in ends}
        return {
            name: CountedWay(
                steps=steps[name],
                tokens=int(_beyond_first(counted, "generated", np.sum).sum()),
                turns=int(_beyond_first(counted, "cycles", np.max).sum()),
                tokens_per_cycle=float(_total(counted, "generated") / _total(counted, "cycles")),
                agree=float(np.mean(_generated(counted, lengths, num_tokens)[alone >= 0] == alone[alone >= 0])),
            )
            for name, counted in ends.items()
        }

    clocked = interleave(
        blocks, repeats, seed=prompts.seed, warm=lambda results: counted(count_all(results)), advance=advance
    )

    def cycles_s(name: Any) -> Float[np.ndarray, "batch repeat"]:
        seconds = np.stack([np.diff(clocked.seconds[name, start], axis=1)[:, 0] for start in starts])
        turns = _beyond_first([clocked.results[name, start] for start in starts], "cycles", np.max)[:, None]
        return np.where(turns > 0, seconds / np.maximum(turns, 1), np.nan)

    def compiled_s(name: str) -> float:
        first = (name, starts[0])
        return max(0.0, clocked.first_s[first][0] - float(np.median(clocked.seconds[first][:, 0])))

    alone_s = cycles_s(AUTOREGRESSIVE)
    return {
        name: TimedWay(
            **vars(counts),
            cycle_s=_middle(cycles_s(name)),
            verify_s=_middle(cycles_s(verifies[name])),
            cycle_over_step=_middle(_over(cycles_s(name), alone_s)),
            compile_s=compiled_s(name),
        )
        for name, counts in count_all(clocked.results).items()
    }


def _rate(count: float, taken: Float[np.ndarray, " repeat"]) -> Float[np.ndarray, " repeat"]:
    """`count` over times; infinite over those that are not positive, since they are as short as the noise allows."""
    return np.where(taken <= 0.0, np.inf, count / np.where(taken == 0.0, np.nan, taken))


def _over(times: Float[np.ndarray, "batch repeat"], others: Float[np.ndarray, "batch repeat"]) -> np.ndarray:
    """Ratio of times; of two that are not positive, nothing is known."""
    ratio = times / np.where(others > 0.0, others, np.nan)
    return np.where((others <= 0.0) & (times > 0.0), np.inf, ratio)


def _total(ends: list[list[Decoded]], field: str) -> int:
    """Of all sequences, from their prompts to their ends."""
    return sum(int(np.asarray(getattr(end, field)).sum()) for _, end in ends)


def _beyond_first(ends: list[list[Decoded]], field: str, over: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Counts of each batch behind its first cycle."""
    return np.array(
        [int(over(np.asarray(getattr(end, field))) - over(np.asarray(getattr(one, field)))) for one, end in ends]
    )


def _generated(ends: list[list[Decoded]], lengths: np.ndarray, num_tokens: int) -> np.ndarray:
    """Generated tokens of all sequences; −1 behind the last."""
    tokens, generated = (np.concatenate([np.asarray(end[place]) for _, end in ends]) for place in (0, 1))
    return generated_tokens(tokens, lengths[: len(tokens)], generated, num_tokens)


def _middle(samples: Float[np.ndarray, "batch repeat"]) -> Float[np.ndarray, " repeat"]:
    """Median over the batches that took more than one cycle."""
    known = ~np.isnan(samples).all(axis=1)
    return np.median(samples[known], axis=0) if known.any() else np.full(samples.shape[1], np.nan)
