"""Rules that choose each cycle's drafter and draft length from what was accepted before, walked along traces, and the best way.

A policy is a tree of numbers with three methods: what it remembers at first, what it chooses, and what it remembers after a
cycle. It sees what an engine sees: how many drafted tokens were accepted, and what a drafter without cost would have gained.

Source: Speculative Decoding: Performance or Illusion?, arXiv:2601.11580 (walks along accepted lengths, an oracle); the additive
    rule is that of transformers' assisted generation.
Departs: the oracle is the fastest way along each request, not the one of fewest cycles.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.acceptance import AcceptanceTrace, in_chunks

__all__ = [
    "AdditiveLength",
    "DraftChoice",
    "DraftPolicy",
    "FastestDraft",
    "FixedLength",
    "PolicyWalk",
    "ThresholdLength",
    "fastest_way",
    "walk_policies",
]


class DraftChoice(NamedTuple):
    """A cycle's drafter, by place in the trace, and its draft length, 0 or more."""

    drafter: Int[Array, ""]
    length: Int[Array, ""]


class DraftPolicy(Protocol):
    """Chooses cycles; leaves are numbers, " policy" of several that are walked together."""

    def begin(self) -> Any:
        """Memory before the first cycle."""
        ...

    def choose(self, memory: Any, seconds: Float[Array, "drafter length"]) -> DraftChoice:
        """A cycle. Args: seconds: that a cycle takes, by drafter and draft length from 0 on."""
        ...

    def after(self, memory: Any, choice: DraftChoice, accepted: Int[Array, ""], gains: Int[Array, " drafter"]) -> Any:
        """Memory after a cycle.

        Args:
            accepted: drafted tokens of this cycle.
            gains: that each drafter would have had, as far as this cycle's tokens tell.
        """
        ...


class PolicyWalk(NamedTuple):
    """Of each request and policy: "request policy"."""

    cycles: Int[np.ndarray, "request policy"]
    drafted: Int[np.ndarray, "request policy"]
    seconds: Float[np.ndarray, "request policy"]


@flax.struct.dataclass
class FixedLength:
    """Always the same draft."""

    drafter: Leaf
    length: Leaf

    def begin(self) -> Any:
        """Nothing."""
        return ()

    def choose(self, memory: Any, seconds: Float[Array, "drafter length"]) -> DraftChoice:
        """The draft."""
        return DraftChoice(self.drafter, self.length)

    def after(self, memory: Any, choice: DraftChoice, accepted: Int[Array, ""], gains: Int[Array, " drafter"]) -> Any:
        """Nothing."""
        return ()


@flax.struct.dataclass
class AdditiveLength:
    """A length from 1 to `most` that grows by `more` where all drafted tokens were accepted, and elsewhere shrinks by one."""

    drafter: Leaf
    more: Leaf
    most: Leaf

    def begin(self) -> Any:
        """The length."""
        return jnp.minimum(5, self.most)

    def choose(self, memory: Any, seconds: Float[Array, "drafter length"]) -> DraftChoice:
        """That length."""
        return DraftChoice(self.drafter, memory)

    def after(self, memory: Any, choice: DraftChoice, accepted: Int[Array, ""], gains: Int[Array, " drafter"]) -> Any:
        """The next one."""
        return jnp.clip(jnp.where(accepted == choice.length, memory + self.more, memory - 1), 1, self.most)


@flax.struct.dataclass
class ThresholdLength:
    """A fixed length while the running mean of accepted tokens is at least `least`; else a draft every `period` cycles."""

    drafter: Leaf
    length: Leaf
    least: Leaf
    rate: Leaf = 0.1
    period: Leaf = 16

    def begin(self) -> Any:
        """Mean of accepted tokens, and cycles since the last draft."""
        return jnp.asarray(self.least, float) + 0.5, jnp.int32(0)

    def choose(self, memory: Any, seconds: Float[Array, "drafter length"]) -> DraftChoice:
        """The draft, or none."""
        mean, waited = memory
        return DraftChoice(self.drafter, jnp.where((mean >= self.least) | (waited >= self.period), self.length, 0))

    def after(self, memory: Any, choice: DraftChoice, accepted: Int[Array, ""], gains: Int[Array, " drafter"]) -> Any:
        """Both."""
        mean, waited = memory
        drafted = choice.length > 0
        seen = mean + self.rate * (accepted.astype(float) - mean)
        return jnp.where(drafted, seen, mean), jnp.where(drafted, 0, waited + 1)


@flax.struct.dataclass
class FastestDraft:
    """The draft with the most tokens per second at the rate of acceptance that recent cycles had, of all drafters and lengths.

    Drafted tokens that were tested count with a weight that falls by `rate` each cycle; a drafter that is not used returns to
    `prior` as slowly, so that it is tried again.

    Attributes:
        prior: rate at first, of every drafter.
        strength: tested tokens that the first rate is worth.
        free: " drafter", 1 for one whose draft is known in every cycle because it costs nothing.
    """

    rate: Leaf
    prior: Leaf
    strength: Leaf
    free: Leaf

    def begin(self) -> Any:
        """Weights of accepted and of tested tokens, " drafter"."""
        tested = jnp.full(jnp.shape(self.free), self.strength, float)
        return tested * self.prior, tested

    def choose(self, memory: Any, seconds: Float[Array, "drafter length"]) -> DraftChoice:
        """The fastest at these rates."""
        accepted, tested = memory
        powers = jnp.arange(seconds.shape[1], dtype=float)
        gained = jnp.cumsum((accepted / tested)[:, None] ** powers[None], axis=1)  # 1 + alpha + ... + alpha^length
        best = jnp.argmax(gained / seconds)
        return DraftChoice(best // seconds.shape[1], best % seconds.shape[1])

    def after(self, memory: Any, choice: DraftChoice, accepted: Int[Array, ""], gains: Int[Array, " drafter"]) -> Any:
        """Weights with this cycle's tokens."""
        places = jnp.arange(gains.shape[0])
        own = places == choice.drafter
        hits = jnp.where(own, accepted, jnp.minimum(gains - 1, accepted + 1))
        tests = jnp.where(own, jnp.minimum(accepted + 1, choice.length), jnp.minimum(gains, accepted + 1))
        seen = jnp.where(own & (choice.length > 0) | (jnp.asarray(self.free) > 0), 1, 0)
        kept = 1.0 - self.rate
        back = self.rate * self.strength  # a drafter that is not seen forgets
        new = lambda old, counts, prior: kept * old + jnp.where(seen > 0, counts.astype(float), back * prior)
        return new(memory[0], hits, self.prior), jnp.maximum(new(memory[1], tests, 1.0), 1e-3)


def walk_policies(
    trace: AcceptanceTrace, policy: DraftPolicy, seconds: Float[np.ndarray, "policy drafter length"]
) -> PolicyWalk:
    """Walk policies along all requests.

    Args:
        policy: leaves " policy ...", or one number for all; those of one kind are walked together.
        seconds: of a cycle, for each policy, by drafter and draft length from 0 on; lengths end with the table.
    """
    lanes = seconds.shape[0]
    order, where = in_chunks(trace, lanes)
    narrow = np.int8 if trace.gained.max(initial=1) < 128 else np.int16
    policy = jax.tree.map(lambda leaf: jnp.asarray(leaf) if np.ndim(leaf) else jnp.full(lanes, leaf), policy)
    walked = _walk(jnp.asarray(trace.gained.astype(narrow)), *where, policy, jnp.asarray(seconds, jnp.float32))
    shaped = []
    for leaf in jax.device_get(walked):
        rows = np.empty((len(order), lanes), leaf.dtype)
        rows[order] = leaf.reshape(-1, lanes)[: len(order)]
        shaped.append(rows)
    return PolicyWalk(*shaped)


@jax.jit
def _walk(gained: Array, starts: Array, ends: Array, policy: DraftPolicy, seconds: Array) -> tuple[Array, Array, Array]:
    def one(start: Array, end: Array, policy: DraftPolicy, seconds: Array) -> tuple[Array, Array, Array]:
        def cycle(state: tuple) -> tuple:
            token, memory, cycles, drafted, total = state
            choice = DraftChoice(*(jnp.asarray(each, jnp.int32) for each in policy.choose(memory, seconds)))
            gains = gained.at[:, token].get(mode="clip").astype(jnp.int32)
            accepted = jnp.minimum(gains[choice.drafter] - 1, choice.length)
            return (
                token + accepted + 1,
                policy.after(memory, choice, accepted, gains),
                cycles + 1,
                drafted + choice.length,
                total + seconds[choice.drafter, choice.length],
            )

        none = jnp.int32(0)
        state = start, jax.tree.map(jnp.asarray, policy.begin()), none, none, jnp.float32(0)
        return lax.while_loop(lambda state: state[0] < end, cycle, state)[2:]

    policies = jax.vmap(one, (None, None, 0, 0))
    requests = jax.vmap(policies, (0, 0, None, None))
    return lax.map(lambda at: requests(at[0], at[1], policy, seconds), (starts, ends))


def fastest_way(
    trace: AcceptanceTrace, seconds: Float[np.ndarray, "case drafter length"]
) -> Float[np.ndarray, "request case"]:
    """Seconds of the fastest way along each request, for who knows it: every cycle drafts what serves best, with any drafter.

    Args:
        seconds: of a cycle, of each case.
    """
    lanes = seconds.shape[0]
    order, where = in_chunks(trace, lanes)
    seconds_by_start = _fastest_way(jnp.asarray(trace.gained, jnp.int32), *where, jnp.asarray(seconds, jnp.float32))
    rows = np.empty((len(order), lanes), np.float64)
    rows[order] = np.asarray(seconds_by_start).reshape(-1, lanes)[: len(order)]
    return rows


@jax.jit
def _fastest_way(gained: Array, starts: Array, ends: Array, seconds: Array) -> Array:
    lengths = jnp.arange(seconds.shape[2])

    def chunk(where: tuple[Array, Array]) -> Array:
        start, end = where
        longest = jnp.max(end - start)

        def back(step: Array, ahead: Array) -> Array:
            """Args: ahead: "request case gain", seconds from 1, 2, ... tokens further on."""
            token = start + longest - 1 - step
            gains = gained.at[:, token].get(mode="clip")  # "drafter request"
            reach = jnp.minimum(gains.T[:, :, None] - 1, lengths[None, None])  # "request drafter length"
            after = jnp.take_along_axis(ahead[:, :, None, :], reach[:, None], axis=3)
            best = jnp.min(seconds[None] + after, axis=(2, 3))
            moved = jnp.concatenate([best[..., None], ahead[..., :-1]], axis=-1)
            return jnp.where((token < end)[:, None, None], moved, ahead)

        nothing = jnp.zeros((start.size, *seconds.shape[:1], lengths.size))
        return lax.fori_loop(0, longest, back, nothing)[..., 0]

    return lax.map(chunk, (starts, ends))
