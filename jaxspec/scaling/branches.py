"""Continuations of one prompt, grown together: the prompt's KV is stored once, and each branch has its own behind it.

Sampling is growing to the end. A search over steps grows to the end of a step, keeps some branches, and grows on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.checks import check_count, check_key, check_network, check_sampling, check_stop, check_tokens
from jaxspec.compress.kv import stored_kv
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.models.kv_cache import CachedKV, KVCache, cache_like, empty_cache, take_sequences, write_cache
from jaxspec.models.mesh import on_host
from jaxspec.speculate.proof import check_logits
from jaxspec.speculate.sampling import SAMPLING, Decoding, Purpose, draw_keys, token_distribution
from jaxspec.speculate.steps import slots_before

__all__ = [
    "PROMPT_STEP",
    "WIDTH",
    "BeamSearch",
    "Beams",
    "Branches",
    "ProcessScorer",
    "Samples",
    "beam_search",
    "check_settings",
    "grow",
    "kept_branches",
    "padded_prompt",
    "sample_continuations",
    "started",
    "token_ids",
]


@struct.dataclass
class Branches:
    """Continuations of one prompt.

    Attributes:
        prefix: KV of the prompt, of one sequence that all branches share; what stands behind the prompt is padding.
        prefix_tokens: tokens of the prompt that lie in it: all but the last, which is the first root.
        cache: each branch's own KV; slot i is of the token at position `prefix_tokens` + i.
        tokens: what each has generated; 0 behind `length`.
        length: tokens generated.
        root: last token of each, which the network has not processed yet.
        ended: whether a stop token was generated.
        paused: whether the last growth ended with a token that pauses.
        log_prob: of each token under the distribution that it was drawn from; 0 behind `length`.
        number: of each sample, which its random numbers are made of.
    """

    prefix: KVCache
    prefix_tokens: Int[Array, ""]
    cache: KVCache
    tokens: Int[Array, "branch place"]
    length: Int[Array, " branch"]
    root: Int[Array, " branch"]
    ended: Bool[Array, " branch"]
    paused: Bool[Array, " branch"]
    log_prob: Float[Array, "branch place"]
    number: Int[Array, " branch"]


@partial(jax.jit, static_argnames=("config", "room"))
def started(
    params: Params,
    prompt: Int[Array, " place"],
    prompt_tokens: Int[Array, ""],
    number: Int[Array, " branch"],
    *,
    config: DecoderConfig,
    room: int,
) -> Branches:
    """Branches that have generated nothing: the prompt is processed once, whatever their number.

    Args:
        prompt: padded behind; prompt_tokens: of it that count, 1 or more.
        number: of each sample.
        room: static; most tokens that a branch will ever have.
    """
    places, branches = prompt.shape[0], number.shape[0]
    result = forward(
        params,
        config,
        prompt[None],
        StepInput(
            jnp.arange(places)[None],
            causal_mask(1, places),
            kv_codec=stored_kv(config),
            lengths=jnp.broadcast_to(prompt_tokens, (1, places)),
        ),
        logits_from=places,
    )
    nothing = jnp.zeros(branches, jnp.int32)
    return Branches(
        prefix=cache_like(params, result.cache),
        prefix_tokens=prompt_tokens - 1,
        cache=empty_cache(config, branches, room, params=params),
        tokens=jnp.zeros((branches, room), jnp.int32),
        length=nothing,
        root=jnp.broadcast_to(prompt[prompt_tokens - 1], (branches,)).astype(jnp.int32),
        ended=jnp.zeros(branches, bool),
        paused=jnp.zeros(branches, bool),
        log_prob=jnp.zeros((branches, room), jnp.float32),
        number=number,
    )


@partial(jit_decoding, static_argnames="config")
def grow(
    params: Params,
    branches: Branches,
    seed: Key[Array, ""],
    prompt_id: Int[Array, ""],
    decoding: Decoding,
    most: Int[Array, ""],
    pause: Int[Array, " pause"],
    stop: Int[Array, " stop"],
    *,
    config: DecoderConfig,
) -> Branches:
    """Every branch that has not ended grows by up to `most` tokens, until a token of `pause` or `stop`, or until it is full.

    A token depends on the seed, the prompt, the branch's number and its position, on no other branch.

    Args:
        prompt_id: of the prompt, as `decode` has it.
    """
    room, count = branches.tokens.shape[1], branches.number.shape[0]
    slots = branches.prefix.num_slots
    before = branches.length
    begun = dataclasses.replace(branches, paused=jnp.zeros(count, bool))
    # Of every place at once: one by one, keys take a tenth of a step on CPUs.
    at_place = draw_keys(
        seed, Purpose.SAMPLE, jnp.broadcast_to(prompt_id, (room,)), branches.prefix_tokens + jnp.arange(room)
    )
    keys = jax.vmap(lambda number: jax.vmap(lambda key: jax.random.fold_in(key, number))(at_place))(branches.number)

    def growing(state: Branches) -> Bool[Array, " branch"]:
        return ~state.ended & ~state.paused & (state.length - before < most) & (state.length < room)

    def step(state: Branches) -> Branches:
        active = growing(state)
        position = state.prefix_tokens + state.length
        shared = jnp.broadcast_to(state.prefix_tokens, (count,))
        result = forward(
            params,
            config,
            state.root[:, None],
            StepInput(
                position[:, None],
                jnp.ones((count, 1, 1), bool),
                sources=[
                    CachedKV(state.prefix, slots_before(shared, 1, slots)),
                    CachedKV(state.cache, slots_before(state.length, 1, room)),
                ],
                kv_codec=stored_kv(config),
            ),
        )
        probability = token_distribution(result.logits[:, 0], decoding)
        log_probability = jnp.log(probability)
        place = jnp.minimum(state.length, room - 1)
        drawn = jax.vmap(jax.random.categorical)(keys[jnp.arange(count), place], log_probability).astype(jnp.int32)
        here = (jnp.arange(room)[None] == state.length[:, None]) & active[:, None]
        chosen = jnp.take_along_axis(log_probability, drawn[:, None], axis=1)
        return dataclasses.replace(
            state,
            # A branch that rests computes its root again: the same values go to the same slot.
            cache=write_cache(state.cache, result.cache, place, after=result.hidden),
            tokens=jnp.where(here, drawn[:, None], state.tokens),
            log_prob=jnp.where(here, chosen, state.log_prob),
            length=state.length + active.astype(jnp.int32),
            root=jnp.where(active, drawn, state.root),
            ended=state.ended | (active & jnp.any(drawn[:, None] == stop[None], axis=1)),
            paused=state.paused | (active & jnp.any(drawn[:, None] == pause[None], axis=1)),
        )

    return jax.lax.while_loop(lambda state: jnp.any(growing(state)), step, begun)


def kept_branches(branches: Branches, index: Int[Array, " branch"], number: Int[Array, " branch"]) -> Branches:
    """Some of the branches, perhaps several times each, with new numbers, so that copies grow apart."""
    rows = {
        name: getattr(branches, name)[index] for name in ("tokens", "length", "root", "ended", "paused", "log_prob")
    }
    cache = take_sequences(branches.cache, index)
    return dataclasses.replace(branches, cache=cache, number=number, **rows)


# Many samples of one prompt, in batches of one width, so that a sample does not depend on how many are asked for.

#: Samples that grow together. The last digits of logits depend on it, on CPUs and GPUs alike.
WIDTH = 16

#: Prompts are padded to multiples of so many tokens, so that few lengths are compiled.
PROMPT_STEP = 64


class Samples(NamedTuple):
    """Continuations of one prompt, on the host.

    Attributes:
        tokens: what was generated; 0 behind `length`.
        length: tokens generated, a stop token included.
        stopped: whether it ended with a stop token.
        log_prob: of each token under the distribution that it was drawn from; 0 behind `length`.
    """

    tokens: Int[np.ndarray, "sample place"]
    length: Int[np.ndarray, " sample"]
    stopped: Bool[np.ndarray, " sample"]
    log_prob: Float[np.ndarray, "sample place"]

    def texts(self) -> list[Int[np.ndarray, " token"]]:
        """The tokens of each sample, without padding."""
        return [row[:length] for row, length in zip(self.tokens, self.length, strict=True)]


def sample_continuations(
    params: Params,
    config: DecoderConfig,
    prompt: Int[np.ndarray, " token"],
    *,
    samples: int,
    num_tokens: int,
    seed: Key[Array, ""],
    prompt_id: int = 0,
    decoding: Decoding = SAMPLING,
    stop: Int[np.ndarray, " stop"] | None = None,
    width: int = WIDTH,
) -> Samples:
    """Sample continuations of one prompt, `width` at a time, over one copy of the prompt's KV.

    Sample i is the same whatever `samples` is: it stands at place i modulo `width` of a batch of one size, and its random
    numbers are made of (seed, prompt, i, position).

    Args:
        prompt: token ids, one or more.
        num_tokens: most tokens of each.
        prompt_id: names the prompt in random keys, as for `decode`.
        stop: tokens that end a sample; None: none does.
        width: samples that grow together; static.
    Raises:
        ValueError: a count below 1, a token outside the vocabulary, or settings of decoding out of their range.
        InputError: the network's logits are no numbers.
    """
    for name, value in (("samples", samples), ("num_tokens", num_tokens), ("width", width)):
        check_count(name, value)
    check_settings(params, config, seed, decoding, stop)
    places, length = padded_prompt(prompt, config)
    settings = (seed, jnp.asarray(prompt_id), decoding.for_program(), jnp.asarray(num_tokens))
    nothing, ends = token_ids(None), token_ids(stop)
    parts: list[Branches] = []
    for first in range(0, samples, width):
        number = first + jnp.arange(width)
        branches = started(params, places, length, number, config=config, room=num_tokens)
        parts.append(grow(params, branches, *settings, nothing, ends, config=config))
    of = lambda name: np.concatenate([np.asarray(on_host(getattr(part, name))) for part in parts])[:samples]
    check_logits(log_prob := of("log_prob"))
    return Samples(tokens=of("tokens"), length=of("length"), stopped=of("ended"), log_prob=log_prob)


def check_settings(
    params: Params,
    config: DecoderConfig,
    seed: Key[Array, ""],
    decoding: Decoding,
    *token_sets: Int[np.ndarray, " _"] | None,
) -> None:
    """Check what samples and beams have in common.

    Args:
        token_sets: tokens that end something.
    Raises:
        ValueError: see `jaxspec.checks`.
    """
    check_network(params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    check_key(seed)
    check_sampling(decoding)
    for tokens in token_sets:
        check_stop(tokens)


def token_ids(tokens: Int[np.ndarray, " token"] | None) -> Int[Array, " token"]:
    """Token ids as an array; None: there are none."""
    return jnp.zeros(0, jnp.int32) if tokens is None else jnp.asarray(tokens, jnp.int32)


def padded_prompt(
    prompt: Int[np.ndarray, " token"], config: DecoderConfig
) -> tuple[Int[Array, " place"], Int[Array, ""]]:
    """A prompt padded to a multiple of `PROMPT_STEP`, and its length.

    Raises:
        ValueError: no token, or one outside the vocabulary.
    """
    prompt = np.asarray(prompt)
    check_tokens("prompt", prompt[None], vocab_size=config.vocab_size)
    places = -(-len(prompt) // PROMPT_STEP) * PROMPT_STEP
    return jnp.asarray(np.pad(prompt.astype(np.int32), (0, places - len(prompt)))), jnp.asarray(len(prompt))


# Beam search over steps: branches grow to the end of a step, a scorer of unfinished work keeps the best, copies grow on.

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
