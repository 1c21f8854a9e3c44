"""Another network as a draft: any one of the target's vocabulary, usually a smaller one, with KV of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from hwmodels.network.architecture import LAYER_COUNTS, Architecture
from hwmodels.numerics.scalars import as_float
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.embedded import check_model, load_model, model_place
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
from jaxspec.models.mesh import mesh_of, placed_beside
from jaxspec.models.rope import text_lengths
from jaxspec.models.special_tokens import unembed
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.models.tokenizer import Vocabulary, shared_vocabulary, vocabulary_beside
from jaxspec.speculate.drafts.interface import Committed, Level, ReadyDraft, Root
from jaxspec.speculate.drafts.sparse_kv_draft import forward_level
from jaxspec.speculate.steps import slots_before

__all__ = ["NetworkDraft", "NetworkMemory", "check_network_draft", "load_network_draft", "scaled_architecture"]


@struct.dataclass
class NetworkMemory:
    """Memory of another network.

    Attributes:
        cache: its own KV; token number n of a cycle has the root's slot + n.
        logits: of the token after the root.
    """

    cache: KVCache
    logits: Float[Array, "batch vocab"]


@dataclasses.dataclass(frozen=True)
class NetworkDraft:
    """A draft that shares the target's tokens and nothing else; its parameters are those of `forward`.

    What was committed is computed anew, in one step, rather than kept from drafting: the root's own place comes last in it, so
    that `open` has nothing to compute. The old root is computed once more with it: a text's first token, which nothing else
    tells, is then no special case.

    Source: Leviathan et al. 2023, arXiv:2211.17192 (a smaller network drafts); SpecInfer, Miao et al. 2024 (a tree of it).
    """

    config: DecoderConfig
    name: str = dataclasses.field(default="network", compare=False)
    #: Rows of the target's vocabulary, where its padding is another; None: the draft's own.
    target_rows: int | None = None

    @property
    def vocab_size(self) -> int:
        """See `Draft.vocab_size`."""
        return self.config.vocab_size if self.target_rows is None else self.target_rows

    def num_parameters(self, params: Params) -> int:
        """See `Draft.num_parameters`."""
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        own = self.config
        architecture = scaled_architecture(
            own,
            target,
            priced,
            layer_share=own.num_layers / target.num_layers,
            tied_embeddings=float(own.tie_embeddings),
        )
        statement = f"{called} with its layers and widths scaled as {self.name}'s are to the measured network's"
        return DraftCost(architecture=architecture, statement=statement)

    def empty(self, params: Params, batch: int, slots: int, numbers: int) -> NetworkMemory:
        """See `Draft.empty`."""
        return NetworkMemory(
            # A window of commitments reaches one slot further than its places.
            cache=empty_cache(self.config, batch, slots + numbers + 1, params=params),
            logits=jnp.zeros((batch, self.vocab_size), jnp.float32),
        )

    def commit(self, params: Params, memory: NetworkMemory, committed: Committed) -> NetworkMemory:
        """See `Draft.commit`."""
        batch, places = committed.tokens.shape
        positions = committed.start[:, None] + jnp.arange(places + 1)[None]
        # What begins a text is its prompt, which is processed at once.
        prompt = jnp.where(committed.start == 0, committed.valid + 1, 0)
        result = forward(
            params,
            self.config,
            self._known(jnp.concatenate([committed.before[:, None], committed.tokens], axis=1)),
            StepInput(
                positions,
                causal_mask(batch, places + 1),
                sources=[CachedKV(memory.cache, slots_before(committed.start, places + 1, memory.cache.num_slots))],
                lengths=text_lengths(positions, prompt),
            ),
            logits_from=places + 1,
        )
        root = jnp.take_along_axis(result.hidden, committed.valid[:, None, None], axis=1)[:, 0]
        return NetworkMemory(
            cache=write_cache(memory.cache, result.cache, committed.start, after=result.hidden),
            logits=self._as_target(unembed(root, params, self.config)),
        )

    def open(
        self, params: Params, memory: NetworkMemory, root: Root
    ) -> tuple[Float[Array, "batch vocab"], NetworkMemory]:
        """See `Draft.open`."""
        del params, root
        return memory.logits, memory

    def extend(
        self, params: Params, memory: NetworkMemory, root: Root, level: Level
    ) -> tuple[Float[Array, "batch token vocab"], NetworkMemory]:
        """See `Draft.extend`."""
        level = level._replace(tokens=self._known(level.tokens))
        result = forward_level(params, self.config, memory.cache, root, level)
        cache = write_cache(memory.cache, result.cache, root.position + level.first, after=result.hidden)
        return self._as_target(result.logits), dataclasses.replace(memory, cache=cache)

    def _known(self, tokens: Int[Array, "batch token"]) -> Int[Array, "batch token"]:
        """Tokens without a row of the draft's read its last one: a guess, which the target verifies as any other."""
        return jnp.minimum(tokens, self.config.vocab_size - 1) if self.vocab_size > self.config.vocab_size else tokens

    def _as_target(self, logits: Float[Array, "*b row"]) -> Float[Array, "*b vocab"]:
        """The same as the target counts tokens: rows that it lacks are cut, rows that the draft lacks are never drafted."""
        rows, wanted = logits.shape[-1], self.vocab_size
        if rows >= wanted:
            return logits[..., :wanted]
        filled = [(0, 0)] * (logits.ndim - 1) + [(0, wanted - rows)]
        return jnp.pad(logits, filled, constant_values=jnp.finfo(logits.dtype).min)


def load_network_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """A network by name or directory, in the form to decode with (see `as_computed`), on the devices of its target.

    Raises:
        InputError: see `load_model`; other tokens than the target's.
    """
    # Where several devices share it, each reads its part from the files.
    loaded = load_model(name, stream=False if mesh_of(target.params) is None else "all")
    shared_vocabulary(_tokens(name, loaded.config), _of_target(str(target.directory), target.config))
    params = placed_beside(as_stored(loaded.params), loaded.config, target.params)
    rows = target.config.vocab_size if target.config.vocab_size != loaded.config.vocab_size else None
    return ReadyDraft(NetworkDraft(loaded.config, name, rows), as_computed(params))


def check_network_draft(name: str, target: DecoderConfig, model: str | None) -> tuple[str, ...]:
    """Notes on a draft from the headers of its files: see `check_draft`.

    Raises:
        InputError: see `check_model`; other tokens than the target's.
    """
    return shared_vocabulary(_tokens(name, check_model(name)), _of_target(model, target))


def _tokens(name: str, own: DecoderConfig) -> Vocabulary:
    return vocabulary_beside(f"draft {name!r}", own.vocab_size, model_place(name))


def _of_target(model: str | None, target: DecoderConfig) -> Vocabulary:
    """Args: model: name or path; None: only the shape is known."""
    if model is None:
        return Vocabulary("the target", target.vocab_size)
    return vocabulary_beside(f"target {model!r}", target.vocab_size, model_place(model))


#: Size of an architecture -> size of a decoder that it is scaled by.
_SCALED_BY = (
    {size: size for size in ("hidden_size", "num_heads", "num_kv_heads", "head_dim")}
    | dict.fromkeys(("intermediate_size", "expert_intermediate_size", "shared_intermediate_size"), "intermediate_size")
    | dict.fromkeys(("linear_key_heads", "linear_value_heads"), "num_heads")
)


def scaled_architecture(
    own: DecoderConfig, target: DecoderConfig, priced: Architecture, *, layer_share: Any, **changed: Any
) -> Architecture:
    """The priced architecture with its widths in the ratio of the draft's to the measured target's.

    Args:
        own, target: shapes of the draft and of the network that runs.
        layer_share: of the priced network's layers, (0, 1] or a leaf.
        changed: further sizes, by name.
    """
    widths = {
        size: as_float(getattr(priced, size)) * (getattr(own, by) / getattr(target, by))
        for size, by in _SCALED_BY.items()
    }
    layers = {count: as_float(getattr(priced, count)) * layer_share for count in LAYER_COUNTS}
    return dataclasses.replace(priced, **widths | layers | changed)
