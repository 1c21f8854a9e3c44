"""The interface of a draft: four pure functions of its parameters and of a memory that it owns, and its cost.

A cycle of decoding tells the draft what was committed (`commit`), asks it about the root (`open`), then about one level of the
tree after another (`extend`). Nothing else is asked, so that a compressed copy of the target, another network, a head on the
target's hidden states and a lookup in the text are all the same to decoding, and to the measurement of what they are worth.

Positions count tokens of the text from 0. The root is the last committed token; the target has not processed it yet, so that
the target's KV and hidden state of it are known only after the next verification.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import KVCache

__all__ = ["Blocks", "Committed", "Draft", "Follows", "Level", "Memory", "ReadyDraft", "Root", "hidden_of"]

#: What a draft remembers: any pytree of arrays.
Memory = Any


class Committed(NamedTuple):
    """Tokens that have become part of the text, with the target's results for the tokens before them.

    Place i of the window is position start + i. The old root is at `start`, the new one at start + valid, and it is
    `tokens[:, valid − 1]`. After a prompt of P tokens, start is 0 and valid P − 1: one token alone makes a window of no place.

    Attributes:
        tokens: at place i, the token at position start + i + 1.
        hidden: at place i, the target's last hidden state (before its final norm) at position start + i; of a draft with
            `hidden_of`, the inputs of these layers, side by side.
        cache: the target's KV of the window, slot i for place i.
        start: position of place 0.
        before: the token at `start`: of a text, its first; later, the old root.
        valid: how many places are valid, 1 to the window's size; 0 for a prompt of one token among longer ones. What stands
            behind them is padding, and may be written to memory where the next commitment overwrites it.
        extras: at place i, what else the target's forward pass recorded at position start + i, as router choices: a pytree with
            leaves "batch place ..."; None of a dense network.
    """

    tokens: Int[Array, "batch place"]
    hidden: Float[Array, "batch place features"]
    cache: KVCache
    start: Int[Array, " batch"]
    before: Int[Array, " batch"]
    valid: Int[Array, " batch"]
    extras: Any = None


class Root(NamedTuple):
    """The last committed token."""

    token: Int[Array, " batch"]
    position: Int[Array, " batch"]


class Level(NamedTuple):
    """Drafted tokens that are expanded together: inner nodes of one depth.

    Within a cycle, tokens that the draft is asked about have numbers: 0 is the root, then come the nodes in the order of the
    levels. Numbers may be left out. A level's last tokens may be padding: a later level then uses their numbers again.

    Attributes:
        tokens: "batch token".
        first: number of the first; the others follow.
        depth: of each after the root, >= 1; its position is the root's + depth.
        parent: number of each one's parent, an earlier level's or 0.
        ancestors: at [.., token, number], which of the numbers are above the token, the root among them, itself not. Padding
            has none.
    """

    tokens: Int[Array, "batch token"]
    first: Int[Array, ""]
    depth: Int[Array, "batch token"]
    parent: Int[Array, "batch token"]
    ancestors: Bool[Array, "batch token number"]


class Draft(Protocol):
    """A draft: static (hashable), with its numbers in `params`, a pytree that every function gets first."""

    @property
    def name(self) -> str:
        """Name for users; drafts that differ in it alone are equal."""
        ...

    @property
    def vocab_size(self) -> int:
        """Static; tokens that it tells apart: the target's."""
        ...

    def num_parameters(self, params: Any) -> int:
        """Numbers that it has beside the target's: 0 for a compressed copy of the target and for a lookup."""
        ...

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """Cost of a draft step where the target is priced as another network.

        Args:
            target: shape of the network that runs.
            priced: architecture of the network whose cost is predicted; called: its name, for the statement.
        Returns:
            A draft that stands to the priced network as this one does to the network that runs.
        """
        ...

    def empty(self, params: Any, batch: int, slots: int, numbers: int) -> Memory:
        """Memory of no text.

        Args:
            slots: static; positions that are ever committed or drafted, padding included, are below it.
            numbers: static; numbers of drafted tokens within a cycle, padding included, are below it.
        """
        ...

    def commit(self, params: Any, memory: Memory, committed: Committed) -> Memory:
        """Take in what was committed. Called once for the prompt, then once per cycle.

        A sequence that has finished is committed again and again from the same position: what comes of it is not used.
        """
        ...

    def open(self, params: Any, memory: Memory, root: Root) -> tuple[Float[Array, "batch vocab"], Memory]:
        """Logits of the token after the root, and the memory with the root as token number 0."""
        ...

    def extend(
        self, params: Any, memory: Memory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], Memory]:
        """Logits of the tokens after a level's, and the memory with the level."""
        ...


class Blocks(NamedTuple):
    """Tokens of known texts, cut into blocks, each of which was drafted token by token from a root of its own.

    Attributes:
        tokens: "batch token"; the first token of a block is its root. positions: of each in its text.
        roots: position of each one's root.
    """

    tokens: Int[Array, "batch token"]
    positions: Int[Array, "batch token"]
    roots: Int[Array, "batch token"]


class Follows(Protocol):
    """What a `Draft` may have besides: it reads many roots of a text in one step, in which its weights are read once."""

    def follow(self, params: Any, memory: Memory, blocks: Blocks) -> Float[Array, "batch token vocab"]:
        """Logits of the token after each of the blocks', as `open` gives them for a root and `extend` for the tokens behind it.

        Args:
            memory: with the whole text committed; a block sees of it what is before its root.
        """
        ...


class ReadyDraft(NamedTuple):
    """A draft with its numbers."""

    draft: Draft
    params: Any

    @property
    def sharing(self) -> int:
        """Consecutive sequences of a batch whose drafts depend on one another, as those that share a pool of experts; 1 of
        drafts without an estimate."""
        return getattr(self.draft, "sharing", 1)

    @property
    def follows_cycles(self) -> bool:
        """Whether what is drafted at a root depends on the cycles before it, so that a text has to be replayed."""
        return getattr(self.draft, "follows_cycles", False)


def hidden_of(draft: Draft | None) -> tuple[int, ...] | None:
    """Layers of the target whose inputs a draft reads, by its attribute of this name; None: what the last one puts out."""
    return getattr(draft, "hidden_of", None)
