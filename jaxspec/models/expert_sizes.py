"""Sizes of a mixture of experts, and the rule by which its router's scores become weights."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["ExpertSizes"]


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
