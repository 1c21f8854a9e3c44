"""What may differ from one Hugging Face model family to another: the columns of the one table of families.

Sizes, defaults and counts of parameters are needed to price a network. Where the network runs here too, `running` adds what a
checkpoint calls its tensors, what its computation is, and which settings it does not have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from hwmodels.networks.settings import Settings
from hwmodels.networks.spec import NetworkSpec

__all__ = [
    "LLAMA_LIKE",
    "Experts",
    "Family",
    "Rotary",
    "RouterRule",
    "Running",
    "Setting",
    "Switch",
    "Windows",
]

#: A property that all networks of a family have or lack, or the key of config.json that says which.
Switch = bool | str


@dataclasses.dataclass(frozen=True)
class Setting:
    """A number or name of the computation that config.json states.

    Attributes:
        key: of config.json; the family's defaults have it.
        power: the computation's number is the key's to this power.
    """

    key: str
    power: float = 1.0


@dataclasses.dataclass(frozen=True)
class Rotary:
    """How a family rotates queries and keys.

    Attributes:
        interleaved: a plane is two neighbouring elements of a head rather than one of each half.
        partial: the settings may say which share of each head is rotated; otherwise it is all of it, always.
        elements: the key of how many elements of each head are rotated, where files state it instead of the share.
        local_theta: the key of the base in layers with a window, where they have one of their own.
        skipped: the keys of the layers that are not rotated: a list of 0 (not rotated) and 1, layer by layer; and n, where
            every n-th layer is not, unless the list is there.
        windowed: layers without a window are not rotated: "always", or where the file states one.
        default: settings of files that state none; None: no scaling.
        scores: yarn's `mscale_all_dim` also multiplies the scores of attention.
        stretched: an `alpha` in rotary settings of kind "dynamic" stretches the base, whatever the text's length.
        query_growth: the key, among the rotary settings, of how queries grow with their position (see `SharedSizes`).
        longrope_spellings: names that the family's files have for "longrope", beside this one.
    """

    interleaved: bool = False
    partial: bool = False
    elements: str | None = None
    local_theta: str | None = None
    skipped: tuple[str, str] | None = None
    windowed: Literal["never", "stated", "always"] = "never"
    longrope_spellings: tuple[str, ...] = ()
    default: Mapping[str, Any] | None = None
    scores: bool = False
    stretched: bool = False
    query_growth: str | None = None


@dataclasses.dataclass(frozen=True)
class RouterRule:
    """How a family's routers turn scores into choices and weights (see `ExpertSizes`).

    Attributes:
        scores: of the logits.
        renormalised: whether the chosen weights are divided by their sum, or the key that says so.
        added: to that sum.
        scale: the key of the factor of the weights.
        groups: the keys of the number of groups, and of how many of them a token chooses from.
        group_score: of a group.
        grouped_by: a key, its value where all experts are chosen from, and where groups are; None: groups always count.
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    renormalised: bool | str = True
    scale: str | None = None
    groups: tuple[str, str] | None = None
    group_score: Literal["largest", "two_largest"] = "two_largest"
    grouped_by: tuple[str, str, str] | None = None
    added: float = 1e-20


@dataclasses.dataclass(frozen=True)
class Running:
    """What is needed to load, run and export networks of a family, beside their sizes.

    Attributes:
        architecture: entry of `architectures` in config.json.
        tensors: parameter -> tensor name; those with `{layer}`, the layer's number, belong to layers. Names of parameters that
            no network of the family has are read over.
        fused: tensor name -> parameters that it holds, in this order: one below the other unless `fused_by` says otherwise.
        fused_by: tensor name -> "head": one head's rows of each parameter, then the next head's; "key_head": likewise of the
            key heads of linear attention; "row": the rows of the parameters alternate.
        transposed: tensors whose last two axes are (input, output).
        unit_axes: tensors with one more axis, of length 1, before the last: weights of convolutions channel by channel.
        stacked: tensor name -> parameters that it holds, one below the other, in checkpoints that have all experts of a layer
            in one tensor. Others have what `tensors` says.
        packed: `quant_method` of the `quantization_config` in which matrices may be stored; None: in none.
        computation: field of `jaxspec.models.DecoderConfig` -> its value in all networks of the family, or the setting that
            states it. Sizes, biases, norms of queries and keys, windows and rotations are read by other columns.
        rotary: None: queries and keys are not rotated.
        router: of families with experts.
        must_equal: config.json keys that select computations which the network here does not have, with the only value that
            it does, or the setting that has it; written to every config.json.
    """

    architecture: str
    tensors: Mapping[str, str]
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    computation: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"norm_eps": Setting("rms_norm_eps"), "activation": Setting("hidden_act")}
    )
    rotary: Rotary | None = Rotary()
    router: RouterRule | None = None
    must_equal: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fused_by: Mapping[str, Literal["head", "key_head", "row"]] = dataclasses.field(default_factory=dict)
    transposed: frozenset[str] = frozenset()
    unit_axes: frozenset[str] = frozenset()
    stacked: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    packed: Literal["mxfp4"] | None = None

    def as_stored(self, names: Collection[str]) -> Running:
        """The row of a checkpoint that has tensors of these names."""
        ends = [(parts[0], parts[-1]) for tensor in self.stacked for parts in [tensor.split("{layer}")]]
        if not any(name.startswith(first) and name.endswith(last) for first, last in ends for name in names):
            return self
        tensors = {name: tensor for tensor, held in self.stacked.items() for name in held}
        fused = {tensor: held for tensor, held in self.stacked.items() if len(held) > 1}
        return dataclasses.replace(self, tensors={**self.tensors, **tensors}, fused={**self.fused, **fused})


@dataclasses.dataclass(frozen=True)
class Windows:
    """Which layers see a sliding window only, where `layer_types` does not say it.

    Attributes:
        pattern: "all"; "listed", the same where `layer_types` may say otherwise; "all_but_every_nth", n being
            `sliding_window_pattern`, and "all_behind_every_nth", which counts from the first layer; "from_layer" and
            "every_other_up_to_layer", the layer being `max_window_layers`.
        enabled: a key that turns them on; windows without such a key are on where `sliding_window` is not null.
    """

    pattern: Literal[
        "all", "listed", "all_but_every_nth", "all_behind_every_nth", "from_layer", "every_other_up_to_layer"
    ]
    enabled: str | None = None


@dataclasses.dataclass(frozen=True)
class Experts:
    """Which layers are mixtures of experts, and what one has beside its matrices.

    Attributes:
        layers: "all"; "after_dense", after `first_k_dense_replace` dense ones, unless `mlp_layer_types` says which; "listed",
            the same where the list is the family's own way to say it;
            "every_nth", n being `decoder_sparse_step`, without those in `mlp_only_layers`; "frequency", those that are 1 in the
            list `moe_layer_freq`; "interval", every n-th, n being `moe_layer_interval`, from `moe_layer_start_index` to
            `moe_layer_end_index`, which is the last layer where it is -1.
        size: the key of an expert's intermediate size.
        shared: the key of the shared experts' intermediate size, all together; or of their number.
        correction_bias: one stored number per expert, which corrects the router's scores.
        biases: of the router and of the experts' matrices.
        shared_gate: a vector that weighs the shared expert.
        clamp: the key of the limit of a clamped gate; None: the network's own activation gates.
    """

    layers: Literal["all", "after_dense", "listed", "every_nth", "frequency", "interval"]
    size: str = "moe_intermediate_size"
    shared: str | None = None
    correction_bias: bool = False
    biases: bool = False
    shared_gate: bool = False
    clamp: str | None = None


@dataclasses.dataclass(frozen=True)
class Family:
    """One model family, as plain data: a row of the table.

    Attributes:
        name: `model_type` of config.json.
        also: other values of it that files of the same networks have -> defaults of theirs that differ; None of a key that such
            a file must state, as releases of transformers differ in its default.
        defaults: key -> value where a file lacks the key. A `num_key_value_heads`, `head_dim` or `intermediate_size` of
            None is derived: as many as heads; hidden size by heads; four hidden sizes. A function derives it from the settings.
            Rows here have functions alone: `defaults.json` has the rest.
        spellings: usual key -> other spellings of this family, its own last.
        norms_per_layer: of the residual stream.
        norm_biases: norms have biases beside their scales.
        qk_norm: "head": one scale for all heads; "all": a scale of its own for every element of all heads, normed together
            unless `computation` says otherwise; "optional_…": where `use_qk_norm` is true.
        gated_ffn: three matrices rather than two.
        qkv_bias, o_bias, ffn_bias, head_bias: vectors added to what the matrices give.
        grouped_queries: `num_key_value_heads` may be stated; otherwise there are as many as query heads, always.
        free_head_dim: `head_dim` may be stated; otherwise it is the hidden size by heads, always.
        latent: multi-head latent attention.
        linear: layers that `layer_types` calls "linear_attention" are gated delta nets; where it is not stated, all but every
            `full_attention_interval`-th.
        convolutions: the linear layers are gated short convolutions instead, called "conv"; where `layer_types` is not stated,
            all that are not in `full_attn_idxs`.
        attention_gate: in the other layers a gate, projected with the queries, multiplies what attention gives.
        learned_sinks: one stored number per head.
        learned_positions: rows of the position table beyond `max_position_embeddings`; None: no table.
        embedding_norm: a norm right after the embedding.
        must_equal: keys that select what is not modelled, with the only value that is.
        running: what else is needed to run such networks; None: they are priced only.
        beyond: the spec with what no other column says.
        announced: beginnings of keys that announce what is not modelled in other families, and which `beyond` reads.
        names: of networks that are priced only: what their tensors are called, for forms that name modules.
    """

    name: str
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    spellings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    norms_per_layer: int | Callable[[Settings], int] = 2
    norm_biases: Switch = False
    qk_norm: Literal["none", "head", "all", "optional_head", "optional_all"] = "none"
    gated_ffn: bool = True
    qkv_bias: Switch = False
    o_bias: Switch = False
    ffn_bias: Switch = False
    head_bias: Switch = False
    grouped_queries: bool = True
    free_head_dim: bool = True
    latent: bool = False
    linear: bool = False
    convolutions: bool = False
    attention_gate: bool = False
    learned_sinks: bool = False
    learned_positions: int | None = None
    embedding_norm: bool = False
    experts: Experts | None = None
    windows: Windows | None = None
    must_equal: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    running: Running | None = None
    also: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    beyond: Callable[[Settings, NetworkSpec], NetworkSpec] | None = None
    announced: tuple[str, ...] = ()
    names: Running | None = None

    @property
    def linear_kind(self) -> str:
        """What `layer_types` calls the layers that attend to no cache of keys and values."""
        return "conv" if self.convolutions else "linear_attention"


#: A network with nothing but what Llama has; what an unknown family is read as.
LLAMA_LIKE = Family(name="llama-like", qkv_bias="attention_bias", o_bias="attention_bias", ffn_bias="mlp_bias")
