"""Lookahead decoding: the target guesses several tokens ahead of the text itself, and what it guessed is looked up later.

Beside the root, each step of the target reads a window of guessed tokens: `window` columns of `ngram` - 1 rows. Column c of row
r is a guess of the token c + r + 1 places behind the root; it sees the root, the first row up to its column, and the rows above
it in its column. The last row's logits give each column one more token, a Jacobi iteration: the column and that token are an
n-gram, which goes into a pool. Then all rows move up by one. A cycle drafts what followed its path in the pool's n-grams that
begin with the root.

Here the window is a pass of its own before the verification; it reads what it would read within the verification, and it is
priced there.

Source: Fu et al. 2024, "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding", arXiv:2402.02057, Sec. 3.
Departs: n-grams with the root are a trie of which any tree may be verified, a chain or G branches; the pool keeps the latest
    n-grams of all first tokens; the first window is made of the prompt's tokens in a fixed order, not a random one.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.checks import check_count
from jaxspec.compress.kv import stored_kv
from jaxspec.errors import InputError
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV, KVCache
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.ngram_draft import NO_VOTE
from jaxspec.speculate.drafts.sparse_kv_draft import TargetCopy
from jaxspec.speculate.steps import slots_before

__all__ = ["LookaheadDraft", "check_lookahead", "lookahead_draft"]

#: Columns and tokens of an n-gram where a name has none: the paper's for networks of 7B on an A100.
_WINDOW, _NGRAM = 15, 5

#: N-grams that a pool holds at most.
_POOL = 4096


class LookaheadMemory(NamedTuple):
    """The target's keys and values; guesses of the last window, the n-grams that it made, and all that were made before.

    Attributes:
        written: n-grams that ever came into the pool. fresh: whether `made` is of the present root.
        matches: at [.., number, n-gram], whether an n-gram of the pool begins with the path from the root to that number.
    """

    cache: KVCache
    window: Int[Array, "batch row column"]
    made: Int[Array, "batch column token"]
    fresh: Bool[Array, " batch"]
    pool: Int[Array, "batch ngram token"]
    written: Int[Array, " batch"]
    matches: Bool[Array, "batch number ngram"]


@dataclasses.dataclass(frozen=True)
class LookaheadDraft(TargetCopy):
    """Lookup in the target's own guesses. It has no weights but the target's.

    Attributes:
        window: columns of guesses (W). ngram: tokens of an n-gram (N), >= 2: a root and what may follow it.
    Raises:
        ValueError: a number out of range.
    """

    window: int = _WINDOW
    ngram: int = _NGRAM
    name: str = dataclasses.field(default="lookahead", compare=False)
    #: What is drafted at a root depends on the cycles before it.
    follows_cycles = True

    def __post_init__(self) -> None:
        check_count("window", self.window, most=256)
        check_count("ngram", self.ngram, least=2, most=16)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        tokens = self.window * (self.ngram - 1)
        return DraftCost(
            passes=0.0,
            lookahead_tokens=float(tokens),
            lookahead_visible=1.0 + (self.window + 1) / 2 + (self.ngram - 2) / 2,
            statement=(
                f"{called} reads {tokens} guessed tokens, {self.window} columns of {self.ngram}-grams, in each verification"
            ),
        )

    def empty(self, params: Params, batch: int, slots: int, numbers: int) -> LookaheadMemory:
        """See `Draft.empty`."""
        pool = self.window * max(1, min(slots, _POOL // self.window))
        none = partial(jnp.zeros, dtype=jnp.int32)
        return LookaheadMemory(
            cache=self.empty_copy(params, batch, slots, 0),
            window=none((batch, self.ngram - 1, self.window)),
            made=none((batch, self.window, self.ngram)),
            fresh=jnp.zeros(batch, bool),
            pool=none((batch, pool, self.ngram)),
            written=none(batch),
            matches=jnp.zeros((batch, numbers, pool), bool),
        )

    def commit(self, params: Params, memory: LookaheadMemory, committed: Committed) -> LookaheadMemory:
        """See `Draft.commit`."""
        del params
        fresh = memory.fresh[:, None, None]
        # Whole windows fill the pool, so that the latest one takes the place of the oldest.
        place = memory.written % memory.pool.shape[1]
        write = jax.vmap(partial(jax.lax.dynamic_update_slice_in_dim, axis=0))
        moved = jnp.concatenate([memory.window[:, 1:], memory.made[:, None, :, -1]], axis=1)
        return memory._replace(
            cache=self.committed_copy(memory.cache, committed, lambda cache: cache),
            window=jnp.where(fresh, moved, self._first_window(committed)),
            pool=jnp.where(fresh, write(memory.pool, memory.made, place), memory.pool),
            written=memory.written + self.window * memory.fresh.astype(jnp.int32),
            fresh=jnp.zeros_like(memory.fresh),
        )

    def _first_window(self, committed: Committed) -> Int[Array, "batch row column"]:
        """Tokens of the prompt, spread over it."""
        text = jnp.concatenate([committed.before[:, None], committed.tokens], axis=1).astype(jnp.int32)
        rows = self.ngram - 1
        spread = 7919 * np.arange(1, rows * self.window + 1)
        place = jnp.asarray(spread, jnp.int32)[None] % (committed.valid[:, None] + 1)
        return jnp.take_along_axis(text, place, axis=1).reshape(-1, rows, self.window)

    def open(
        self, params: Params, memory: LookaheadMemory, root: Root
    ) -> tuple[Float[Array, "batch vocab"], LookaheadMemory]:
        """See `Draft.open`."""
        batch, window = len(root.token), memory.window
        mask, depth = _view(self.window, self.ngram - 1)
        tokens = jnp.concatenate([root.token[:, None], window.reshape(batch, -1)], axis=1)
        result = forward(
            params,
            self.config,
            tokens,
            StepInput(
                root.position[:, None] + depth[None],
                jnp.broadcast_to(mask, (batch, *mask.shape)),
                sources=[CachedKV(memory.cache, slots_before(root.position, tokens.shape[1], memory.cache.num_slots))],
                kv_codec=stored_kv(self.config),
            ),
            logits_from=tokens.shape[1] - self.window,
        )
        guessed = jnp.argmax(result.logits, axis=-1).astype(jnp.int32)
        made = jnp.concatenate([window.transpose(0, 2, 1), guessed[..., None]], axis=2)
        known = jnp.arange(memory.pool.shape[1])[None] < memory.written[:, None]
        matches = known & (memory.pool[..., 0] == root.token[:, None])
        memory = memory._replace(
            made=made, fresh=jnp.ones_like(memory.fresh), matches=memory.matches.at[:, 0].set(matches)
        )
        return self._votes(memory, matches[:, None], jnp.ones((batch, 1), jnp.int32))[:, 0], memory

    def extend(
        self, params: Params, memory: LookaheadMemory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], LookaheadMemory]:
        """See `Draft.extend`."""
        del params, root
        above = jnp.take_along_axis(memory.matches, level.parent[..., None], axis=1)
        matches = above & (self._at(memory, level.depth) == level.tokens[..., None])
        written = jax.lax.dynamic_update_slice_in_dim(memory.matches, matches, level.first, axis=1)
        memory = memory._replace(matches=written)
        return self._votes(memory, matches, level.depth + 1), memory

    def _at(self, memory: LookaheadMemory, place: Int[Array, "batch token"]) -> Int[Array, "batch token ngram"]:
        """Tokens of all n-grams at a place; -1 behind their ends."""
        ended = jnp.pad(memory.pool, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
        return jnp.take_along_axis(ended.transpose(0, 2, 1), jnp.minimum(place, self.ngram)[..., None], axis=1)

    def _votes(
        self, memory: LookaheadMemory, matches: Bool[Array, "batch token ngram"], place: Int[Array, "batch token"]
    ) -> Float[Array, "batch token vocab"]:
        """Logarithms of how many n-grams go on with each token; among equals, those of the latest n-gram win."""
        following, size = self._at(memory, place), memory.pool.shape[1]
        age = (memory.written[:, None] - 1 - jnp.arange(size)[None]) % size
        vote = 1.0 + (1.0 - age / size) / (2 * size)
        vote = jnp.where(matches & (following >= 0), vote[:, None], 0.0)
        count = lambda tokens, votes: jnp.zeros(self.vocab_size, jnp.float32).at[tokens].add(votes)
        return jnp.log(jax.vmap(jax.vmap(count))(jnp.maximum(following, 0), vote) + NO_VOTE)


def _view(window: int, rows: int) -> tuple[Bool[np.ndarray, "token token"], Int[np.ndarray, " token"]]:
    """Which tokens, the root and then row by row, see which; and how many places each is behind the root."""
    row, column = (place.ravel() for place in np.indices((rows, window)))
    same = column[:, None] == column[None]
    above = same & (row[:, None] >= row[None])
    first = (row[None] == 0) & (column[None] <= column[:, None])
    mask = np.pad(above | first, ((1, 0), (1, 0)))
    mask[:, 0] = True
    return mask, np.concatenate([[0], 1 + row + column]).astype(np.int32)


def lookahead_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """Lookahead decoding of a target: 15 columns of 5-grams, or by a name such as `lookahead-7-4` of its own.

    Raises:
        InputError: see `check_lookahead`.
    """
    check_lookahead(name, target.config, None)
    sizes = [int(part) for part in name.split("-")[1:]] or [_WINDOW, _NGRAM]
    return ReadyDraft(LookaheadDraft(target.config, *sizes, name=name), as_computed(as_stored(target.params)))


def check_lookahead(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError for a network with linear attention, whose state follows one line of tokens, or a name of other form."""
    del model
    if target.mixed_layers is not None:
        raise InputError(
            f"draft {name!r} reads several guesses of one place in one step, and the network has linear attention, whose state "
            "follows one line of tokens; allowed are networks without: give another draft"
        )
    sizes: list[Any] = name.split("-")[1:]
    if sizes and not (len(sizes) == 2 and all(size.isdecimal() for size in sizes)):
        raise InputError(
            f"draft {name!r} is no lookahead decoding; allowed are names such as lookahead-7-4: 7 columns of 4-grams"
        )
    if sizes and not (1 <= int(sizes[0]) <= 256 and 2 <= int(sizes[1]) <= 16):
        raise InputError(f"draft {name!r} has {sizes[0]} columns of {sizes[1]}-grams; allowed are 1 to 256 of 2 to 16")
