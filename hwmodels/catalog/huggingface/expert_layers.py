"""Which layers of a network are mixtures of experts, and the sizes of these, by the rules of its family."""

from __future__ import annotations

from typing import NamedTuple

from hwmodels.catalog.huggingface.family import Family
from hwmodels.catalog.huggingface.settings import LARGEST_LAYERS, Settings, shown

__all__ = ["ExpertSettings", "experts_of"]


class ExpertSettings(NamedTuple):
    """Experts that a config.json describes.

    Attributes:
        layers: whether each layer is a mixture of experts; empty: none is.
        experts, per_token: routed ones. size: an expert's intermediate size. shared: of all shared experts together.
        correction_bias, biases, shared_gate: as of `Experts`.
    """

    layers: tuple[bool, ...] = ()
    experts: int = 0
    per_token: int = 0
    size: int = 0
    shared: int = 0
    correction_bias: bool = False
    biases: bool = False
    shared_gate: bool = False

    @property
    def num_layers(self) -> int:
        """Layers that are mixtures of experts."""
        return sum(self.layers)

    def vectors(self, hidden: int, matrices: int) -> int:
        """Stored elements of vectors per layer of experts."""
        of_experts = self.experts * (1 + matrices * self.size + hidden) if self.biases else 0
        return of_experts + self.experts * self.correction_bias + hidden * self.shared_gate


def experts_of(settings: Settings, family: Family) -> ExpertSettings:
    """The experts of a network.

    Raises:
        EntryError: a value is missing, of the wrong kind or out of range.
    """
    rule = family.experts
    if rule is None:
        return ExpertSettings()
    count = settings.optional_size("num_experts", least=0) or 0
    layers = settings.size("num_hidden_layers", most=LARGEST_LAYERS)
    moe_layers = _expert_layers(settings, rule.layers, layers) if count else []
    if not any(moe_layers):
        if rule.layers == "all":
            raise settings.error("num_experts", f"is {count}; every layer of this family has at least one")
        return ExpertSettings()
    size = settings.size(rule.size)
    shared = 0
    if rule.shared == "n_shared_experts":
        shared = size * (settings.optional_size("n_shared_experts", least=0) or 0)
    elif rule.shared is not None:
        shared = settings.optional_size(rule.shared, least=0) or 0
    return ExpertSettings(
        layers=tuple(moe_layers),
        experts=count,
        per_token=settings.size("num_experts_per_tok"),
        size=size,
        shared=shared,
        correction_bias=rule.correction_bias,
        biases=rule.biases,
        shared_gate=rule.shared_gate,
    )


def _expert_layers(settings: Settings, rule: str, layers: int) -> list[bool]:
    if rule == "all":
        return [True] * layers
    if rule == "every_nth":
        step = settings.size("decoder_sparse_step")
        dense = settings.layer_numbers("mlp_only_layers")
        return [(number + 1) % step == 0 and number not in dense for number in range(layers)]
    kinds = settings.names("mlp_layer_types")
    if kinds is None:
        dense_layers = settings.optional_size("first_k_dense_replace", least=0) or 0
        return [number >= dense_layers for number in range(layers)]
    if not set(kinds) <= {"dense", "sparse"}:
        raise settings.error("mlp_layer_types", f"is {shown(kinds)}; each entry must be 'dense' or 'sparse'")
    return [kind == "sparse" for kind in kinds]
