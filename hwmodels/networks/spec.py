"""A decoder network as its config.json describes it: what is priced and what runs are both made of this."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["ExpertSizes", "LatentSizes", "LearnedPositions", "LinearSizes", "NetworkSpec", "RopeSpec", "SharedSizes"]


@dataclasses.dataclass(frozen=True)
class ExpertSizes:
    """Sizes and rules that all layers with routed experts share.

    Attributes:
        num_experts: routed ones per layer.
        per_token: routed experts that each token goes through.
        inner_size: inner channels of one routed expert.
        shared_size: inner channels of all shared experts of a layer together, which every token goes through; 0: none.
        shared_gated: what the shared experts give is multiplied by the sigmoid of a logit of the token's own.
        scores: of the router's logits: softmax over all experts, or sigmoid of each.
        renormalised: the weights of the chosen experts are divided by their sum. Of a softmax this equals the softmax over the
            chosen logits alone.
        added: to that sum, before weights are divided by it.
        scale: by which the weights are multiplied.
        router_bias: the router's logits have a bias.
        correction_bias: a number per expert, added to the scores for the choice alone, not for the weights.
        expert_biases: the matrices of the experts have biases.
        groups: equal groups of consecutive experts, of which only the best `groups_per_token` are chosen from.
        group_score: of a group: its largest score, or the sum of its two largest.
        clamp: limit of the clamped gate of GPT-OSS; None: the network's own activation gates.
    Raises:
        ValueError: a size that does not fit.
    """

    num_experts: int
    per_token: int
    inner_size: int
    shared_size: int = 0
    shared_gated: bool = False
    scores: Literal["softmax", "sigmoid"] = "softmax"
    renormalised: bool = True
    added: float = 1e-20  # keeps a division by a sum of no scores finite
    scale: float = 1.0
    router_bias: bool = False
    correction_bias: bool = False
    expert_biases: bool = False
    groups: int = 1
    groups_per_token: int = 1
    group_score: Literal["largest", "two_largest"] = "two_largest"
    clamp: float | None = None

    def __post_init__(self) -> None:
        for name in ("num_experts", "per_token", "inner_size", "groups", "groups_per_token"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.shared_size < 0:
            raise ValueError(f"shared_size is {self.shared_size}; it must be at least 0")
        if self.shared_gated and not self.shared_size:
            raise ValueError("shared_gated is True, and shared_size is 0; give a size, or False")
        if not self.scale > 0:
            raise ValueError(f"scale is {self.scale}; it must be above 0")
        if self.clamp is not None and not self.clamp > 0:
            raise ValueError(f"clamp is {self.clamp}; it must be above 0, or None")
        if self.num_experts % self.groups:
            raise ValueError(f"{self.groups} groups came; they must divide the {self.num_experts} experts")
        if self.groups_per_token > self.groups:
            raise ValueError(f"groups_per_token is {self.groups_per_token}; there are {self.groups} groups")
        choice = self.num_experts // self.groups * self.groups_per_token
        if self.per_token > choice:
            raise ValueError(f"per_token is {self.per_token}; a token chooses among {choice} experts")
        if self.grouped and self.group_score == "two_largest" and self.num_experts // self.groups < 2:
            raise ValueError("groups of one expert have no two largest scores; allowed are groups of at least 2")

    @property
    def grouped(self) -> bool:
        """Whether groups restrict the choice."""
        return self.groups_per_token < self.groups

    def vectors(self, hidden: int, matrices: int) -> int:
        """Stored elements of vectors per layer, where an expert has so many matrices."""
        of_experts = self.num_experts * (matrices * self.inner_size + hidden) if self.expert_biases else 0
        return of_experts + self.num_experts * (self.router_bias + self.correction_bias) + hidden * self.shared_gated


@dataclasses.dataclass(frozen=True)
class LatentSizes:
    """Sizes of multi-head latent attention, whose keys and values come out of one short vector per token.

    Attributes:
        kv_rank: elements of that vector, the latent.
        rope_head_dim: rotated elements of each head's query, and of the one key that all heads share. The part of a head that
            is not rotated has the network's `head_dim`.
        value_head_dim: of each head's values.
        query_rank: elements of the latent of queries; None: they come from the hidden state directly.
        norm_eps: what the norms of latents add to the variance: a constant of these networks, which no config.json states.
    Raises:
        ValueError: a size below 1, or an odd number of rotated elements.
    Source: DeepSeek-V2, arXiv:2405.04434, Section 2.1.
    """

    kv_rank: int
    rope_head_dim: int
    value_head_dim: int
    query_rank: int | None = None
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if self.rope_head_dim % 2:
            raise ValueError(f"rope_head_dim is {self.rope_head_dim}; rotary embeddings need an even one")


@dataclasses.dataclass(frozen=True)
class LinearSizes:
    """Sizes of gated delta nets, or of short convolutions that stand alone.

    Attributes:
        key_heads: heads of queries and of keys; 0, as `key_dim` is then: a convolution alone (LFM2), whose channels are values.
        value_heads: of values, a multiple of these; consecutive ones share a key head.
        key_dim, value_dim: elements of a head.
        conv_tokens: tokens that the convolution over queries, keys and values joins, the new one included.
    Raises:
        ValueError: a size below 1, or value heads that are no multiple of the key heads.
    Source: Yang et al. 2024, arXiv:2412.06464, Section 3.3; heads as in Qwen3-Next's network in transformers.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_tokens: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1 and not (self.convolution_alone and name in ("key_heads", "key_dim")):
                raise ValueError(f"{name} of linear attention is {value}; it must be at least 1")
        if self.key_heads and self.value_heads % self.key_heads:
            raise ValueError(
                f"{self.value_heads} value heads of linear attention cannot share {self.key_heads} key heads; the first must "
                "be a multiple of the second"
            )

    @property
    def convolution_alone(self) -> bool:
        """Whether there is no matrix for each head."""
        return self.key_heads == self.key_dim == 0

    @property
    def keys(self) -> int:
        """Elements of all heads' keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of all heads' values."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Queries, keys and values together."""
        return 2 * self.keys + self.values


@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """A table of vectors that are added to the embedding: position p has row p + offset."""

    rows: int
    offset: int = 0

    @property
    def positions(self) -> int:
        """That have a vector: from 0 up to this number, not included."""
        return self.rows - self.offset


@dataclasses.dataclass(frozen=True)
class RopeSpec:
    """A rotation of queries and keys.

    Attributes:
        kind: of its scaling, as `rope_type` calls it; "default": none.
        values: of the scaling, by the names that jaxspec's scalings have for them.
    """

    theta: float = 10_000.0
    kind: str = "default"
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SharedSizes:
    """Sizes of a decoder that its description and a network that runs have in common.

    Attributes:
        intermediate_size: of the dense feed-forward networks.
        num_kv_heads, head_dim, qk_norm, qkv_bias: of grouped-query attention; the last two add norms of queries and keys per
            head, and biases of queries, keys and values.
        qk_norm_whole: the norms of queries and keys are over all heads together, each element with a scale of its own.
        o_bias, ffn_bias: biases of attention's output, and of all feed-forward matrices.
        xielu: the activation of dense feed-forward networks is xIELU, of which each layer has four numbers stored.
        attention_gate: in layers without linear attention a gate, projected from the input as queries are, multiplies what
            attention gives.
        attention_sinks: each head has a learned logit that takes part in the softmax and has no value.
        learned_positions: vectors added to the embedding.
        latent: sizes of latent attention, which caches one vector per token; None: keys and values are cached. `head_dim` is
            then the part of a head that is not rotated, `qkv_bias` of the projections from the hidden state to latents.
        linear: sizes of layers with linear attention; None: no layer has it.
        experts: sizes and rules of the layers that are mixtures of experts; None: there are none.
        rotary_dim: elements of each head that are rotated, its first ones; None: all. Of an odd number the last one is rotated
            with its neighbour, as transformers does.
        query_growth: r and n: a query at position p is multiplied by 1 + r log(1 + floor(p / n)); None: it is not.
        interleaved_rope: a plane of rotation is (2i, 2i + 1) rather than (i, i + rotary_dim / 2).
        windows: tokens that a layer sees, itself included, layer by layer; None: all.
        rotated: whether a layer rotates queries and keys, likewise.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool = False
    qk_norm: bool = False
    qk_norm_whole: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    ffn_bias: bool = False
    xielu: bool = False
    attention_gate: bool = False
    attention_sinks: bool = False
    learned_positions: LearnedPositions | None = None
    latent: LatentSizes | None = None
    linear: LinearSizes | None = None
    experts: ExpertSizes | None = None
    rotary_dim: int | None = None
    query_growth: tuple[float, int] | None = None
    interleaved_rope: bool = False
    windows: tuple[int | None, ...] = (None,)
    rotated: tuple[bool, ...] = (True,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSpec(SharedSizes):
    """A decoder as its file describes it, windows and rotations layer by layer.

    Attributes:
        norms_per_layer: of the residual stream. norm_biases: norms have biases beside their scales.
        gated_ffn: three matrices rather than two in dense layers.
        linear_layers, expert_layers: of each layer whether it has linear attention, and is a mixture of experts.
        attends, feeds: whether each layer has attention, linear or not, and a feed-forward network; None: all do.
        indexes: whether each layer scores tokens, to select those that are attended to; None: no layer does.
        beyond: further fields of `Architecture`, by name.
        notes: what is priced otherwise than it is.
        head_bias, embedding_norm: which no network that runs here has.
        computation: further fields of a network that runs, by name; None: the file was read for its sizes alone.
    """

    linear_layers: tuple[bool, ...]
    expert_layers: tuple[bool, ...]
    gated_ffn: bool = True
    norms_per_layer: int = 2
    norm_biases: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    rope: RopeSpec = RopeSpec()
    local_rope: RopeSpec | None = None
    computation: Mapping[str, Any] | None = None
    attends: tuple[bool, ...] | None = None
    feeds: tuple[bool, ...] | None = None
    indexes: tuple[bool, ...] | None = None
    beyond: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def architecture_values(self) -> dict[str, float]:
        """Field of `Architecture` -> value; whether they fit together is not checked here.

        Raises:
            NotImplementedError: windows of several lengths, which one architecture cannot hold.
        """
        hidden, matrices = self.hidden_size, 1 + self.gated_ffn
        layers, feeding = (self.num_layers if which is None else sum(which) for which in (self.attends, self.feeds))
        moe, linear = sum(self.expert_layers), sum(self.linear_layers)
        lengths = sorted({window for window in self.windows if window is not None})
        if len(lengths) > 1:
            shown = " and ".join(map(str, lengths))
            raise NotImplementedError(
                f"windows of {shown} tokens cannot be priced as one architecture; allowed is one length"
            )
        norm_bias, intermediate = hidden * self.norm_biases, self.intermediate_size if moe < feeding else 0
        vectors = layers * self.norms_per_layer * norm_bias + (layers - linear) * self._attention_vectors()
        vectors += (feeding - moe) * ((matrices * intermediate + hidden) * self.ffn_bias + 4 * self.xielu)
        values = {
            "num_layers": layers,
            "num_ffn_layers": 0 if feeding == layers else feeding,
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads if self.latent is None else self.num_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "tied_embeddings": self.tie_embeddings,
            "qk_norm": self.qk_norm and self.latent is None,
            "gated_ffn": self.gated_ffn,
            "norms_per_layer": self.norms_per_layer,
            "vectors_outside_layers": norm_bias * (1 + self.embedding_norm)
            + hidden * self.embedding_norm
            + self.vocab_size * self.head_bias,
            "learned_positions": 0 if self.learned_positions is None else self.learned_positions.rows,
            "num_window_layers": sum(window is not None for window in self.windows),
            "window_tokens": sum(lengths),
            "attention_gate": self.attention_gate,
        }
        if (experts := self.experts) is not None:
            vectors += moe * experts.vectors(hidden, matrices)
            values |= {
                "num_moe_layers": moe,
                "num_experts": experts.num_experts,
                "experts_per_token": experts.per_token,
            }
            values |= {"expert_intermediate_size": experts.inner_size, "shared_intermediate_size": experts.shared_size}
        if (latent := self.latent) is not None:
            values |= {"kv_lora_rank": latent.kv_rank, "q_lora_rank": latent.query_rank or 0}
            values |= {"rope_head_dim": latent.rope_head_dim, "v_head_dim": latent.value_head_dim}
        if self.linear is not None:
            sizes = {f"linear_{name}": value for name, value in vars(self.linear).items()}
            values |= {"num_linear_layers": linear, **sizes}
            # The gate before a convolution has as many rows as there are channels.
            values |= {"linear_rates": 1} if self.linear.convolution_alone else {}
        if self.indexes is not None:
            values |= {"num_selecting_layers": layers, "num_index_layers": sum(self.indexes)}
        beyond = dict(self.beyond)
        vectors += beyond.pop("vectors", 0)  # of all layers
        values |= {"vectors_per_layer": vectors / layers}
        return {name: float(value) for name, value in (values | beyond).items()}

    def _attention_vectors(self) -> int:
        """Per layer that attends to a cache, beside the scales of norms head by head."""
        if (latent := self.latent) is not None:
            # Only what projects from and to the residual stream has biases.
            down = (latent.query_rank or 0) + latent.kv_rank + latent.rope_head_dim
            return down * self.qkv_bias + self.hidden_size * self.o_bias
        query, key_value = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        biases = (query * (1 + self.attention_gate) + 2 * key_value) * self.qkv_bias + self.hidden_size * self.o_bias
        normed = (query + key_value if self.qk_norm_whole else 2 * self.head_dim) * self.qk_norm
        # An architecture that normalises has one scale for all query heads and one for all key heads.
        beyond = normed * (1 + self.norm_biases) - 2 * self.head_dim * self.qk_norm
        return biases + beyond + self.num_heads * self.attention_sinks
