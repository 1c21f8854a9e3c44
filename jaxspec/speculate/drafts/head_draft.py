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
from jaxspec.models.draft_head import (
    PLAIN_HEAD,
    HeadRule,
    TargetEnds,
    check_head_config,
    head_forward,
    head_logits,
    head_states,
)
from jaxspec.models.embedded import check_draft_head, load_draft_head
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.models.matrix import is_matrix
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.network_draft import scaled_architecture
from jaxspec.speculate.drafts.sparse_kv_draft import tree_slots
from jaxspec.speculate.steps import slots_before

__all__ = ["HeadDraft", "HeadDraftParams", "HeadMemory", "load_head_draft", "own_head_draft"]


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
    rule: HeadRule = PLAIN_HEAD

    def __post_init__(self) -> None:
        check_head_config(self.config)

    @property
    def hidden_of(self) -> tuple[int, ...] | None:
        """See `jaxspec.speculate.drafts.interface.hidden_of`."""
        return self.rule.hidden_of

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size

    def num_parameters(self, params: HeadDraftParams) -> int:
        """See `Draft.num_parameters`; ends that are the target's do not count."""
        return sum(
            leaf.size
            for name, node in params.head.items()
            if name != "row_of"
            for leaf in jax.tree.leaves(node, is_leaf=is_matrix)
        )

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        own, rule = self.config, self.rule
        hidden, vocabulary = own.hidden_size, own.vocab_size
        rows = vocabulary if rule.rows is None else rule.rows
        changed = {"num_linear_layers": 0.0, "vocab_size": as_float(priced.vocab_size) * (rows / vocabulary)}
        if target.experts is not None:
            changed["num_moe_layers"] = float(own.experts is not None)
        share = 1.0 / as_float(priced.num_layers)
        one_layer = scaled_architecture(own, target, priced, layer_share=share, **changed)
        if target.experts is not None and own.experts is None:
            width = as_float(priced.hidden_size) * (own.intermediate_size / target.hidden_size)
            one_layer = dataclasses.replace(one_layer, intermediate_size=width, shared_intermediate_size=0.0)
        # What mixes token and hidden state, 2 h^2 or as many more columns of queries, keys and values, is as many weights as
        # these rows of the feed-forward matrices.
        mixing = sum(own.matrix_shape(kind)[0] for kind in ("q", "k", "v")) / hidden if rule.beside else 2.0
        more = mixing * one_layer.hidden_size / (2.0 + as_float(priced.gated_ffn))
        wider = {  # of dense layers, and of mixtures of experts
            size: getattr(one_layer, size) + more for size in ("intermediate_size", "shared_intermediate_size")
        }
        statement = (
            f"one layer of {called} and its LM head; the layer's inner widths are to {called}'s as {self.name}'s are to the "
            "measured network's, its mixing matrix counts as feed-forward rows"
        )
        return DraftCost(
            architecture=dataclasses.replace(one_layer, **wider),
            shares_ends=float(rule.rows is None),
            maps_logits=float(rows != vocabulary),
            statement=statement,
        )

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
            hidden=head_states(
                params.head, self.config, self.rule, params.ends, jnp.where(valid[..., None], committed.hidden, 0)
            ),
            positions=committed.start[:, None] + place,
            mask=causal_mask(batch, places),
            sources=[CachedKV(memory.cache, slots_before(committed.start, places, memory.cache.num_slots))],
            rule=self.rule,
        )
        last = jnp.maximum(committed.valid, 1)[:, None, None] - 1
        root = jnp.take_along_axis(result.hidden, last, axis=1)
        # A prompt of one token among longer ones has no place, and starts as it does alone.
        there = committed.valid[:, None] > 0
        logits = self._logits(root[:, 0], params)
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
            rule=self.rule,
        )
        memory = dataclasses.replace(
            memory,
            cache=write_cache(memory.cache, result.cache, place + level.first, after=result.hidden),
            hidden=jax.lax.dynamic_update_slice_in_dim(memory.hidden, result.hidden, level.first, axis=1),
        )
        return self._logits(result.hidden, params), memory

    def _logits(self, hidden: Float[Array, "*b hidden"], params: HeadDraftParams) -> Float[Array, "*b vocab"]:
        return head_logits(hidden, params.ends, self.config, params=params.head, rule=self.rule)


def load_head_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """A head of the target by name or directory, in float32, its matrices as products of few rows read them fastest.

    Raises:
        InputError: see `load_draft_head`.
    """
    head = load_draft_head(name, target)
    params = _columns(jax.tree.map(jnp.asarray, HeadDraftParams(head.params, head.ends)), target.config.tie_embeddings)
    return ReadyDraft(HeadDraft(head.config, name, head.rule), params)


def own_head_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """The target's own layer for further tokens; see `load_head_draft`."""
    return load_head_draft(name, target)


def check_head_draft(name: str, target: DecoderConfig, model: str | None) -> None:
    """Raise InputError for a head that cannot be used, without reading its weights."""
    check_draft_head(name, target, model)


@partial(jax.jit, static_argnames="tied")
def _columns(params: HeadDraftParams, tied: bool) -> HeadDraftParams:
    wide = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, params
    )
    # A tied head is looked up too.
    ends = wide.ends if tied else wide.ends._replace(lm_head=Columns.of(wide.ends.lm_head))
    return HeadDraftParams(columns_first(wide.head), ends)
