"""A draft without a network: what followed the same tokens earlier in the text.

Every earlier place in the text votes for the token after it, with a weight that grows by a constant factor for each token in
which the text before that place agrees with what stands before the token to be drafted. The longest agreements win; where
nothing agrees, the text's own frequencies remain.

Source: prompt lookup decoding (Saxena 2023) and lookahead decoding (Fu et al. 2024, arXiv:2402.02057) take the continuation
    of one matching n-gram.
Departs: all places vote, so that candidates have an order and trees have something to branch on.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.checks import check_count
from jaxspec.models.config import DecoderConfig
from jaxspec.models.hf_load import LoadedModel
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root

__all__ = ["NO_VOTE", "NGramDraft", "NGramMemory", "NGramParams", "ngram_draft"]

#: Votes of a token that nothing has voted for: less than any vote.
NO_VOTE = 1e-6


class NGramParams(NamedTuple):
    """Factor by which each further token of agreement raises a vote, > 1."""

    agreement: Float[Array, ""] | float = 32.0


class NGramMemory(NamedTuple):
    """The committed text, and the drafted tokens with their parents, by number (0 is the root)."""

    text: Int[Array, "batch slot"]
    tokens: Int[Array, "batch number"]
    parent: Int[Array, "batch number"]


@dataclasses.dataclass(frozen=True)
class NGramDraft:
    """Lookup of earlier occurrences.

    Attributes:
        vocab_size: tokens of the target.
        longest: tokens of agreement that count, 1 to 16: votes stay finite.
    Raises:
        ValueError: a number out of range.
    """

    vocab_size: int
    longest: int = 6
    name: str = dataclasses.field(default="ngram", compare=False)

    def __post_init__(self) -> None:
        check_count("vocab_size", self.vocab_size)
        check_count("longest", self.longest, most=16)

    def num_parameters(self, params: NGramParams) -> int:
        """See `Draft.num_parameters`."""
        del params
        return 0

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced, called
        return DraftCost(passes=0.0, statement="a lookup in the text, which runs no network")

    def empty(self, params: NGramParams, batch: int, slots: int, numbers: int) -> NGramMemory:
        """See `Draft.empty`."""
        del params
        none = lambda size: jnp.zeros((batch, size), jnp.int32)
        return NGramMemory(text=none(slots), tokens=none(numbers), parent=none(numbers))

    def commit(self, params: NGramParams, memory: NGramMemory, committed: Committed) -> NGramMemory:
        """See `Draft.commit`."""
        del params
        write = jax.vmap(jax.lax.dynamic_update_slice_in_dim, in_axes=(0, 0, 0, None))
        tokens = jnp.concatenate([committed.before[:, None], committed.tokens], axis=1).astype(jnp.int32)
        return memory._replace(text=write(memory.text, tokens, committed.start, 0))

    def open(
        self, params: NGramParams, memory: NGramMemory, root: Root
    ) -> tuple[Float[Array, "batch vocab"], NGramMemory]:
        """See `Draft.open`."""
        number = jnp.zeros((root.token.shape[0], 1), jnp.int32)
        return self._votes(params, memory, root, number)[:, 0], memory

    def extend(
        self, params: NGramParams, memory: NGramMemory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], NGramMemory]:
        """See `Draft.extend`."""
        write = lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new.astype(jnp.int32), level.first, axis=1)
        memory = memory._replace(tokens=write(memory.tokens, level.tokens), parent=write(memory.parent, level.parent))
        batch, tokens = level.tokens.shape
        numbers = jnp.broadcast_to(level.first + jnp.arange(tokens, dtype=jnp.int32), (batch, tokens))
        return self._votes(params, memory, root, numbers), memory

    def _votes(
        self, params: NGramParams, memory: NGramMemory, root: Root, numbers: Int[Array, "batch token"]
    ) -> Float[Array, "batch token vocab"]:
        """Logarithms of the votes after each drafted token."""

        def of_sequence(text, tokens, parent, position, numbers):
            slots = text.shape[0]
            slot = jnp.arange(slots)

            def of_token(number):
                # Walking back from the token: above 0 along the tree, from 0 on along the text that ends in the root.
                # Unrolled: on CPUs a turn of a loop takes longer than what there is to do in it.
                agree, length = jnp.ones(slots, bool), jnp.zeros(slots, jnp.int32)
                for i in range(self.longest):
                    token = jnp.where(
                        number > 0, tokens[jnp.maximum(number, 0)], text[jnp.maximum(position + number, 0)]
                    )
                    known = position + jnp.minimum(number, 0) >= 0
                    earlier = jnp.where(slot >= i, jnp.roll(text, i), -1)
                    agree = agree & (earlier == token) & known
                    number = jnp.where(number > 0, parent[jnp.maximum(number, 0)], number - 1)
                    length = length + agree.astype(jnp.int32)
                agreement = jnp.asarray(params.agreement, jnp.float32)
                vote = jnp.where(slot < position, agreement ** length.astype(jnp.float32), 0.0)
                votes = jnp.zeros(self.vocab_size, jnp.float32).at[jnp.roll(text, -1)].add(vote)
                return jnp.log(votes + NO_VOTE)

            return jax.vmap(of_token)(numbers)

        return jax.vmap(of_sequence)(memory.text, memory.tokens, memory.parent, root.position, numbers)


def ngram_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The lookup for a target's vocabulary."""
    return ReadyDraft(NGramDraft(target.config.vocab_size, name=name), NGramParams())
