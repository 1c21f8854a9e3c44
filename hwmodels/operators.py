"""What one step of a decoder executes: FLOPs and bytes per operator, whichever step it is.

Prefill, decoding, drafting and verification are one function at different numbers of new tokens and read widths.
Modelling choices, all about what is moved off chip:

* Weights are read once per step, whatever the batch; the embedding only by the row.
* Activations are 16-bit, read once and written once by each operator, except where neighbours fuse: q, k and v read
  their input together (counted at q), so do gate and up (at gate); the gated product is formed on chip and written once
  (at up); rotary embedding and the norm of queries and keys ride along with the projections; o and down add the
  residual stream, which they read and write. Attention scores stay on chip.
* New keys and values reach attention on chip and are written to the cache once, at 16 bits: compression of the cache
  happens later, at no cost here. The cache of the context is read once per sequence, shared by all its new tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.architecture import KINDS, LAYER_MATRICES, Architecture, kv_elements_per_token, parameters
from hwmodels.interface import UNCOMPRESSED_BITS, Footprint, Workload
from hwmodels.scalars import Leaf, Number, as_float
from hwmodels.units import BITS_PER_BYTE

#: The "operator" axis, in order of execution within a layer; "norm" stands for all norms of the network.
OPERATORS = ("embed", "q", "k", "v", "attention", "o", "gate", "up", "down", "norm", "lm_head")

ACTIVATION_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE
KV_WRITE_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE

#: Square, accumulate, multiply by the inverse root, multiply by the scale.
NORM_FLOPS_PER_ELEMENT = 4.0


@flax.struct.dataclass
class OperatorWork:
    """Work of one step, "*b operator" over `OPERATORS`, totals over all layers."""

    flops: Float[Array, "... operator"]
    weight_bytes: Float[Array, "... operator"]
    kv_bytes: Float[Array, "... operator"]
    activation_bytes: Float[Array, "... operator"]
    launches: Float[Array, "... operator"]  # how often the operator starts in the step, once per layer as a rule

    @property
    def memory_bytes(self) -> Float[Array, "... operator"]:
        """All bytes that cross the memory interface."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def step_operators(
    architecture: Architecture,
    *,
    tokens: Number,
    batch: Number,
    context_tokens: Number,
    weight_bits: Mapping[str, Number],
    kv_bits: Number,
    logit_tokens: Number | None = None,
) -> OperatorWork:
    """FLOPs and bytes of one forward pass over `tokens` new tokens per sequence, causal among themselves.

    Args:
        architecture: leaves "*b".
        tokens: "*b", >= 1; new tokens per sequence (1 decoding or drafting, x verification, the prompt in prefill).
        batch: "*b", >= 1; sequences.
        context_tokens: "*b", >= 0; tokens already cached per sequence.
        weight_bits: kind -> "*b", over all of `KINDS`; bits read per stored weight. A tied head is read at the width of
            "lm_head", the rows of the embedding at that of "embed".
        kv_bits: "*b", bits read per cached element.
        logit_tokens: "*b", tokens per sequence that pass the last norm and the head; all new ones unless given.
    Returns:
        Smooth in every argument: sizes and counts are real numbers, nothing is rounded.
    Raises:
        ValueError: `weight_bits` lacks a kind or names one that does not exist.
    Source: FLOPs of a matrix product, 2 per weight and token; of attention, 2 products of 2 FLOPs per head element and
        visible token, of which a new token sees the context and on average (tokens + 1) / 2 new ones, itself included.
    """
    _check_kinds(weight_bits)
    a = jax.tree.map(as_float, architecture)
    tokens, batch, context, kv_bits = (as_float(value) for value in (tokens, batch, context_tokens, kv_bits))
    bits = {kind: as_float(value) for kind, value in weight_bits.items()}
    rows = batch * tokens
    logit_rows = rows if logit_tokens is None else batch * as_float(logit_tokens)

    stored = parameters(a)
    head_parameters = a.vocab_size * a.hidden_size  # read here even where it is stored as the embedding
    query_size = a.num_heads * a.head_dim
    kv_elements = kv_elements_per_token(a)
    normalised = (
        rows * a.num_layers * (2.0 * a.hidden_size + a.qk_norm * (a.num_heads + a.num_kv_heads) * a.head_dim)
        + logit_rows * a.hidden_size
    )
    visible_tokens = context + (tokens + 1.0) / 2.0

    flops = {kind: 2.0 * stored[kind] * rows for kind in LAYER_MATRICES} | {
        "attention": 4.0 * a.num_layers * query_size * visible_tokens * rows,
        "norm": NORM_FLOPS_PER_ELEMENT * normalised,
        "lm_head": 2.0 * head_parameters * logit_rows,
    }
    weights_read = {kind: stored[kind] for kind in (*LAYER_MATRICES, "norm")} | {
        "embed": rows * a.hidden_size,
        "lm_head": head_parameters,
    }
    kv_bytes = {
        "attention": batch * kv_elements * (context * kv_bits / BITS_PER_BYTE + tokens * KV_WRITE_BYTES),
    }
    layer_rows = rows * a.num_layers
    activations = {
        "embed": rows * a.hidden_size,
        "q": layer_rows * (a.hidden_size + query_size),
        "attention": 2.0 * layer_rows * query_size,
        "o": layer_rows * (query_size + 2.0 * a.hidden_size),
        "gate": layer_rows * a.hidden_size,
        "up": layer_rows * a.intermediate_size,
        "down": layer_rows * (a.intermediate_size + 2.0 * a.hidden_size),
        "norm": 2.0 * a.hidden_size * (2.0 * layer_rows + logit_rows),
        "lm_head": logit_rows * (a.hidden_size + a.vocab_size),
    }
    launches = {"embed": 1.0, "norm": 2.0 * a.num_layers + 1.0, "lm_head": 1.0}
    return OperatorWork(
        flops=_over_operators(flops),
        weight_bytes=_over_operators({name: n * bits[name] / BITS_PER_BYTE for name, n in weights_read.items()}),
        kv_bytes=_over_operators(kv_bytes),
        activation_bytes=_over_operators({name: n * ACTIVATION_BYTES for name, n in activations.items()}),
        launches=_over_operators(dict.fromkeys(OPERATORS, a.num_layers) | launches),
    )


def prefill_operators(architecture: Architecture, workload: Workload, *, footprint: Footprint) -> OperatorWork:
    """The prompt through the target, from an empty cache; only each sequence's last token reaches the head."""
    return step_operators(
        architecture,
        tokens=workload.prompt_tokens,
        batch=workload.batch,
        context_tokens=0.0,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
        logit_tokens=1.0,
    )


def decode_operators(architecture: Architecture, workload: Workload, *, footprint: Footprint) -> OperatorWork:
    """One autoregressive step of the target."""
    return verify_operators(architecture, workload, footprint=footprint, verify_tokens=1.0)


def draft_operators(architecture: Architecture, workload: Workload, *, footprint: Footprint) -> OperatorWork:
    """One autoregressive step of the draft: the target's network, read at the draft's widths."""
    return step_operators(
        architecture,
        tokens=1.0,
        batch=workload.batch,
        context_tokens=workload.context_tokens,
        weight_bits=footprint.draft_weight_bits,
        kv_bits=footprint.draft_kv_bits,
    )


def verify_operators(
    architecture: Architecture, workload: Workload, *, footprint: Footprint, verify_tokens: Number
) -> OperatorWork:
    """One pass of the target over `verify_tokens` ("*b", >= 1) new tokens per sequence, each with its logits."""
    return step_operators(
        architecture,
        tokens=verify_tokens,
        batch=workload.batch,
        context_tokens=workload.context_tokens,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
    )


def _over_operators(values: dict[str, Leaf]) -> Float[Array, "... operator"]:
    return jnp.stack(jnp.broadcast_arrays(*(values.get(name, 0.0) for name in OPERATORS)), axis=-1)


def _check_kinds(weight_bits: Mapping[str, Number]) -> None:
    missing, unknown = [k for k in KINDS if k not in weight_bits], sorted(set(weight_bits) - set(KINDS))
    if missing or unknown:
        raise ValueError(
            f"weight_bits lacks kinds {missing} and has unknown ones {unknown}; "
            "it must hold each of hwmodels.KINDS: start from uniform_weight_bits(16)"
        )
