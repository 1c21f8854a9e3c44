"""A draft head on the target's hidden states as a draft: true states at committed positions, its own predictions after them."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture
from hwmodels.numerics.scalars import as_float
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.models.apart import Columns, columns_first
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask
from jaxspec.models.draft_head import TargetEnds, check_head_config, head_forward, head_logits
from jaxspec.models.embedded import check_draft_head, load_draft_head
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.scaling import scaled_architecture
from jaxspec.speculate.drafts.target_copy import tree_slots
from jaxspec.speculate.steps import slots_before

__all__ = ["HeadDraft", "HeadDraftParams", "HeadMemory", "load_head_draft"]


class HeadDraftParams(NamedTuple):
    """The head's own parameters, and the parts of the target that it shares."""

    head: Params
    ends: TargetEnds


@struct.dataclass
class HeadMemory:
    """Memory of a head.

    Attributes:
        cache: one layer. Place t has slot t: it holds what the head made of the token at position t + 1, so that token
            number n of a cycle has the slot before the root's position, + n.
        hidden: predicted hidden state of each numbered token of the cycle.
        logits: of the token after the root.
    """

    cache: KVCache
    hidden: Float[Array, "batch number hidden"]
    logits: Float[Array, "batch vocab"]


@dataclasses.dataclass(frozen=True)
class HeadDraft:
    """A draft of one decoder layer between the target's embedding and its LM head.

    The root's place is the last one of what was committed: `commit` computes what `open` gives.

    Raises:
        NotImplementedError: see `check_head_config`.
    Source: see `head_forward`.
    """

    config: DecoderConfig
    name: str = dataclasses.field(default="head", compare=False)

    def __post_init__(self) -> None:
        check_head_config(self.config)

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: HeadDraftParams) -> int:
        """See `Draft.num_parameters`; the head's ends are the target's."""
        return sum(leaf.size for leaf in jax.tree.leaves(params.head))

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        one_layer = scaled_architecture(self.config, target, priced, layer_share=1.0 / as_float(priced.num_layers))
        # The matrix that mixes token and hidden state is 2 h², as many weights as these rows of the feed-forward matrices.
        rows = 2.0 * one_layer.hidden_size / (2.0 + as_float(priced.gated_ffn))
        wider = {  # of dense layers, and of mixtures of experts
            size: getattr(one_layer, size) + rows for size in ("intermediate_size", "shared_intermediate_size")
        }
        statement = (
            f"one layer of {called} and its LM head; the layer's inner widths are to {called}'s as {self.name}'s are to the "
            "measured network's, its mixing matrix counts as feed-forward rows"
        )
        return DraftCost(architecture=dataclasses.replace(one_layer, **wider), shares_ends=1.0, statement=statement)

    def empty(self, params: HeadDraftParams, batch: int, slots: int, numbers: int) -> HeadMemory:
        """See `Draft.empty`."""
        del params
        return HeadMemory(
            cache=empty_cache(self.config, batch, slots + numbers),
            hidden=jnp.zeros((batch, numbers, self.config.hidden_size), jnp.float32),
            logits=jnp.zeros((batch, self.config.vocab_size), jnp.float32),
        )

    def commit(self, params: HeadDraftParams, memory: HeadMemory, committed: Committed) -> HeadMemory:
        """See `Draft.commit`."""
        batch, places = committed.tokens.shape
        if places == 0:
            return memory  # a prompt of one token: no hidden state is known, and the first cycle drafts what it may
        place = jnp.arange(places)[None]
        valid = place < committed.valid[:, None]
        result = head_forward(
            params.head,
            self.config,
            ends=params.ends,
            tokens=committed.tokens,
            # Padding is masked, but 0 times what is not finite would still not be 0.
            hidden=jnp.where(valid[..., None], committed.hidden, 0),
            positions=committed.start[:, None] + place,
            mask=causal_mask(batch, places),
            sources=[CachedKV(memory.cache, slots_before(committed.start, places, memory.cache.num_slots))],
        )
        last = jnp.maximum(committed.valid, 1)[:, None, None] - 1
        root = jnp.take_along_axis(result.hidden, last, axis=1)
        # A prompt of one token among longer ones has no place, and starts as it does alone.
        there = committed.valid[:, None] > 0
        logits = head_logits(root[:, 0], params.ends, self.config)
        return HeadMemory(
            cache=write_cache(memory.cache, result.cache, committed.start, after=result.hidden),
            hidden=memory.hidden.at[:, :1].set(jnp.where(there[..., None], root, memory.hidden[:, :1])),
            logits=jnp.where(there, logits, memory.logits),
        )

    def open(
        self, params: HeadDraftParams, memory: HeadMemory, root: Root
    ) -> tuple[Float[Array, "batch vocab"], HeadMemory]:
        """See `Draft.open`."""
        del params, root
        return memory.logits, memory

    def extend(
        self, params: HeadDraftParams, memory: HeadMemory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], HeadMemory]:
        """See `Draft.extend`."""
        batch, tokens = level.tokens.shape
        place = root.position - 1
        result = head_forward(
            params.head,
            self.config,
            ends=params.ends,
            tokens=level.tokens,
            hidden=jnp.take_along_axis(memory.hidden, level.parent[:, :, None], axis=1),
            positions=place[:, None] + level.depth,
            # Tokens of one level are not above each other.
            mask=jnp.broadcast_to(jnp.eye(tokens, dtype=bool), (batch, tokens, tokens)),
            sources=[CachedKV(memory.cache, tree_slots(place, level.ancestors, memory.cache.num_slots))],
        )
        memory = dataclasses.replace(
            memory,
            cache=write_cache(memory.cache, result.cache, place + level.first, after=result.hidden),
            hidden=jax.lax.dynamic_update_slice_in_dim(memory.hidden, result.hidden, level.first, axis=1),
        )
        return head_logits(result.hidden, params.ends, self.config), memory


def load_head_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """A head of the target by name or directory, in float32, its matrices as products of few rows read them fastest.

    Raises:
        InputError: see `load_draft_head`.
    """
    head = load_draft_head(name, target)
    params = _columns(jax.tree.map(jnp.asarray, HeadDraftParams(head.params, head.ends)), target.config.tie_embeddings)
    return ReadyDraft(HeadDraft(head.config, name), params)


def check_head_draft(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError for a head that cannot be used, without reading its weights."""
    del model
    check_draft_head(name, target)


@partial(jax.jit, static_argnames="tied")
def _columns(params: HeadDraftParams, tied: bool) -> HeadDraftParams:
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    # A tied head is looked up too.
    ends = wide.ends if tied else wide.ends._replace(lm_head=Columns.of(wide.ends.lm_head))
    return HeadDraftParams(columns_first(wide.head), ends)
