"""What a kind of block must offer. A block is a small frozen object; all numbers it computes with come as arguments.

Every block reads the hidden states, after a norm in most networks, and returns what is added to the residual stream.
Parameters are named arrays; matrices are (output row, input column), as checkpoints store them. Two blocks of a network that
share a parameter's name must give it the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.attention import TextOrder, attend, attend_sequentially
from jaxspec.models.router import MoreExperts, RouterChoices
from jaxspec.models.sizes import DecoderSizes

__all__ = [
    "Attend",
    "Attention",
    "AttentionResult",
    "CachedShape",
    "FeedForward",
    "FeedForwardResult",
    "KVCodec",
    "StepInput",
]

#: Applied to the keys and to the values that a step writes, before anything reads them.
KVCodec = Callable[[Array], Array]

#: What `attend` does, in another way: (query, sources), with the same options.
Attend = Callable[..., Array]


class StepInput(NamedTuple):
    """Where the tokens of a step are and what they see; what the blocks of one layer read beside their input.

    Attributes:
        positions: of the tokens. mask: True where a token (row) sees a token of this step (column).
        sources: earlier keys and values, any number, each with the slots that each token sees: `CachedKV` of all layers for
            `forward`, `KVSource` of its own layer for a block.
        kv_codec: applied to the new keys and values before anyone reads them.
        dot_dtype: of the operands of matrix products, that of activations unless given (see `dot_rows`).
        frugal: for training on CPUs: attend sequentially and recompute each layer in the backward pass.
        attend: in another way than `jaxspec.models.attention.attend`, as `attend_fp16`; static.
        lengths: tokens of the text that each token is rotated for, where that matters (dynamic scaling, LongRoPE); None: as
            many as there are up to the token, so that decoding does not depend on how many tokens a step takes.
        rope: the layer's rotation, by its place among `DecoderSizes.ropes`; None: the first.
        allowed_experts: those that this layer's router may choose, for each sequence or each token; None: all.
        more_experts: a larger set beside them, for a blend of both; None: there is none.
        order: of sums over all sources but the first, as for `attend`; None: that of their slots.
        source_positions: of the tokens in the slots of each source; None in caches that do not know them.
    """

    positions: Int[Array, "batch token"]
    mask: Bool[Array, "batch token token"]
    sources: Sequence[Any] = ()
    kv_codec: KVCodec | None = None
    dot_dtype: Any = None
    frugal: bool = False
    attend: Attend | None = None
    lengths: Int[Array, "batch token"] | None = None
    rope: Int[Array, ""] | None = None
    allowed_experts: Bool[Array, "batch *token expert"] | None = None
    more_experts: MoreExperts | None = None
    order: TextOrder | None = None
    source_positions: Sequence[Int[Array, "#batch slot"] | None] = ()

    def attending(self) -> Attend:
        """The way to attend: the one that is given, or the one that suits."""
        if self.attend is not None:
            return self.attend
        if self.order is not None:
            return partial(attend, order=self.order)
        return partial(attend_sequentially, dot_dtype=self.dot_dtype) if self.frugal else attend


class CachedShape(NamedTuple):
    """What attention caches of a token.

    Attributes:
        heads: key-value heads.
        key_dim, value_dim: elements of each head's key and value; linear attention has none of the latter.
    """

    heads: int
    key_dim: int
    value_dim: int

    @property
    def elements(self) -> int:
        """Of a token and layer."""
        return self.heads * (self.key_dim + self.value_dim)


class AttentionResult(NamedTuple):
    """Output of an attention block, the keys and values that it wrote (layouts of `KVCache`), and its matrices' inputs by
    input group."""

    output: Float[Array, "batch token hidden"]
    written: tuple[Array, Array]
    inputs: dict[str, Array]


class FeedForwardResult(NamedTuple):
    """Output of a feed-forward block, its matrices' inputs by input group, and the choices of its router, where it has one."""

    output: Float[Array, "batch token hidden"]
    inputs: dict[str, Array]
    choices: RouterChoices | None = None


class Block(Protocol):
    """Parameters of a block. How a kind that is not of this package is priced: see `architecture_of`."""

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """Name -> shape: (output rows, input columns), further axes in front."""
        ...

    def vectors(self, sizes: DecoderSizes) -> Mapping[str, tuple[int | tuple[int, ...], float]]:
        """Name -> length (or shape, where every expert has one) and initial value of scales and biases."""
        ...

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """Matrices whose output goes to the residual stream."""
        ...


class Attention(Block, Protocol):
    """A kind of attention."""

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """What the KV cache holds of a token."""
        ...

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """Attend from `normed`; computes in its dtype. `weights` are those of one layer."""
        ...


class FeedForward(Block, Protocol):
    """A kind of feed-forward network."""

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Any],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> FeedForwardResult:
        """Apply the network to each token; computes in the dtype of `normed`. `weights` are those of one layer; what has more
        axes than a matrix may be a `Matrix`, of which to take entries."""
        ...
