"""The operators of a step, and what is known of each: arithmetic, traffic, launches, shapes of its products."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.operators.expert_sharing import ExpertReads
from hwmodels.numerics.gradients import batch_innermost, share_cotangent
from hwmodels.numerics.scalars import Leaf, Tree, rank_of, with_rank

#: The "operator" axis, in order of execution within a layer; an operator is what engines launch at once.
OPERATORS = (
    "embed",
    "qkv",  # all projections of the hidden state that attention needs
    "latent",  # second projections of latent attention
    "attention",  # to what is cached
    "linear_attention",  # matrices per head that are updated instead
    "o",
    "gate_up",
    "down",
    "router",
    "expert_gate_up",
    "expert_down",
    "shared_gate_up",
    "shared_down",
    "norm",  # all norms and vectors of the network
    "lm_head",
)

#: Operators that multiply by stored matrices.
MATRIX_OPERATORS = tuple(name for name in OPERATORS if name not in ("embed", "attention", "linear_attention", "norm"))

#: Operators that read routed experts.
EXPERT_OPERATORS = ("expert_gate_up", "expert_down")


@flax.struct.dataclass
class MatrixShapes:
    """Each operator as products of m x k activations by k x n weights (or keys and values), "*b operator".

    FLOPs are 2 m k n * products * launches. 1 x 1 x 1 and no product where an operator multiplies no matrices.
    """

    m: Float[Array, "... operator"]
    k: Float[Array, "... operator"]
    n: Float[Array, "... operator"]
    products: Float[Array, "... operator"]  # independent products of one launch: experts, or key-value heads
    weight_bits: Float[Array, "... operator"]  # read per stored weight, on average; 16 where nothing is stored


@flax.struct.dataclass
class StoredBytes:
    """What must be held for the step, "*b": by it tensors are placed in memories."""

    kv: Float[Array, ...]
    dense: Float[Array, ...]  # all weights but the routed experts
    experts: Float[Array, ...]
    by_the_row: Float[Array, ...]  # among the dense weights: an embedding table that is no head

    @property
    def total(self) -> Float[Array, ...]:
        """All that is held."""
        return self.kv + self.dense + self.experts


@flax.struct.dataclass
class AttentionReads:
    """What one product of attention finds in the cache, "*b". Sizes do not depend on how many new tokens there are."""

    tokens: Leaf  # cached ones that it reads, >= 0, on average over layers
    elements: Leaf  # of each of them: keys and values of a head, or latents with rotated keys
    depth: Leaf  # elements multiplied per query and token where keys and values are used as they are cached


@flax.struct.dataclass
class OperatorWork:
    """Work of one step, "*b operator" over `OPERATORS`, totals over all layers."""

    flops: Float[Array, "... operator"]
    weight_bytes: Float[Array, "... operator"]
    kv_bytes: Float[Array, "... operator"]
    activation_bytes: Float[Array, "... operator"]
    launches: Float[Array, "... operator"]  # how often the operator starts in the step, once per layer as a rule
    shapes: MatrixShapes | None = None  # what devices with a matrix unit need
    stored: StoredBytes | None = None  # what devices with several memories need
    coded_elements: Float[Array, "... operator"] | None = (
        None  # read in fewer than 16 bits: what a decoder has to decode
    )

    coded_bits: Float[Array, "... operator"] | None = None  # that these elements are stored in
    coded_tensors: Float[Array, "... operator"] | None = None  # that they belong to, each stored by itself
    experts: ExpertReads | None = None  # what a placement with a cache of experts needs
    #: What a unit with measured attention needs: new tokens per sequence, cached elements read and bits of each.
    new_tokens: Float[Array, ...] | None = None
    #: 1: a verification of several tokens per sequence, with keys and values cached by heads: kernels may take each context in
    #: one piece; 0: any other step.
    uncut: Float[Array, ...] | None = None
    kv_elements: Float[Array, ...] | None = None
    kv_bits: Float[Array, ...] | None = None
    #: Elements of new keys and values that are stored coded, of all sequences: what an encoder has to encode.
    encoded_kv: Float[Array, ...] | None = None
    attention: AttentionReads | None = None  # what units need whose banks or folds hold whole blocks of the cache

    @property
    def memory_bytes(self) -> Float[Array, "... operator"]:
        """All bytes that cross the memory interface."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def over_operators(values: Mapping[str, Leaf], default: float = 0.0) -> Float[Array, "... operator"]:
    """Values by operator name as one array; `default` for operators that are not named."""
    stacked = jnp.stack(jnp.broadcast_arrays(*(values.get(name, default) for name in OPERATORS)), axis=-1)
    return batch_innermost(share_cotangent(stacked))


#: Fields of `OperatorWork` that a step has one of, without an axis of operators.
_OF_A_STEP = ("stored", "experts", "new_tokens", "uncut", "kv_elements", "kv_bits", "encoded_kv", "attention")


def over_batches(device: Tree, work: OperatorWork) -> tuple[Tree, OperatorWork]:
    """A device and work, either of which may be a batch, with as many axes of batches in both.

    Args:
        device: leaves "*b".
    """
    axes = max(rank_of(device), work.flops.ndim - 1)
    fields = (field.name for field in dataclasses.fields(work))
    expanded = {name: with_rank(getattr(work, name), axes + (name not in _OF_A_STEP)) for name in fields}
    return with_rank(device, axes), dataclasses.replace(work, **expanded)
