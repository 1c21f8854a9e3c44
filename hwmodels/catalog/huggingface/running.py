"""What a row of the families' table says so that networks of the family run: tensors, and numbers of the computation."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

__all__ = ["Rotary", "RouterRule", "Running", "Setting"]


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
        windowed: where a file states a window, layers without one are not rotated.
        default: settings of files that state none; None: no scaling.
        scores: yarn's `mscale_all_dim` also multiplies the scores of attention.
        longrope_spellings: names that the family's files have for "longrope", beside this one.
    """

    interleaved: bool = False
    partial: bool = False
    elements: str | None = None
    local_theta: str | None = None
    skipped: tuple[str, str] | None = None
    windowed: bool = False
    longrope_spellings: tuple[str, ...] = ()
    default: Mapping[str, Any] | None = None
    scores: bool = False


@dataclasses.dataclass(frozen=True)
class RouterRule:
    """How a family's routers turn scores into choices and weights (see `jaxspec.models.expert_sizes`).

    Attributes:
        scores: of the logits.
        renormalised: whether the chosen weights are divided by their sum, or the key that says so.
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
            in one tensor; their first layer shows it. Others have what `tensors` says.
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
        if not any(tensor.format(layer=0) in names for tensor in self.stacked):
            return self
        tensors = {name: tensor for tensor, held in self.stacked.items() for name in held}
        fused = {tensor: held for tensor, held in self.stacked.items() if len(held) > 1}
        return dataclasses.replace(self, tensors={**self.tensors, **tensors}, fused={**self.fused, **fused})
