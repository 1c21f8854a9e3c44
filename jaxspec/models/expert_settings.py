"""Experts of a network, by its config.json and the row of its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hwmodels.catalog.huggingface import Family, RouterRule, Settings, experts_of
from jaxspec.models.blocks import DenseFeedForward, Experts, FeedForward
from jaxspec.models.config import DecoderConfig
from jaxspec.models.config_values import positive
from jaxspec.models.expert_sizes import ExpertSizes

__all__ = ["Mixture", "read_experts", "written_experts"]


class Mixture(NamedTuple):
    """Sizes of the experts, None where there are none, and the kinds of feed-forward block, layer by layer."""

    sizes: ExpertSizes | None
    feed_forward: tuple[FeedForward, ...]


def read_experts(raw: Mapping[str, Any], family: Family) -> Mixture:
    """What a parsed config.json says of experts.

    Raises:
        NotImplementedError: experts of a kind that does not run here.
        ValueError: a value is missing, of the wrong kind, or sizes do not fit together.
    """
    dense = DenseFeedForward(gated=family.gated_ffn)
    settings = Settings(raw, family.defaults, family.spellings, "config.json")
    found = experts_of(settings, family)
    if not found.num_layers:
        return Mixture(None, (dense,))
    rule = family.running.router if family.running is not None else None
    if rule is None:
        raise NotImplementedError(f"mixtures of experts of the family {family.name} do not run; they are priced only")
    groups, chosen = map(settings.size, rule.groups) if rule.groups and _grouped(settings, rule) else (1, 1)
    clamp = None if family.experts is None else family.experts.clamp
    renormalised = rule.renormalised if isinstance(rule.renormalised, bool) else settings.flag(rule.renormalised)
    sizes = ExpertSizes(
        num_experts=found.experts,
        per_token=found.per_token,
        inner_size=found.size,
        shared_size=found.shared,
        shared_gated=found.shared_gate and found.shared > 0,
        scores=rule.scores,
        renormalised=renormalised,
        scale=1.0 if rule.scale is None else positive({rule.scale: settings.get(rule.scale)}, rule.scale),
        router_bias=found.biases,
        correction_bias=found.correction_bias,
        expert_biases=found.biases,
        groups=groups,
        groups_per_token=chosen,
        group_score=rule.group_score,
        clamp=None if clamp is None else positive({clamp: settings.get(clamp)}, clamp),
    )
    return Mixture(sizes, tuple(Experts() if mixed else dense for mixed in found.layers))


def _grouped(settings: Settings, rule: RouterRule) -> bool:
    """Whether groups count in this network."""
    if rule.grouped_by is None:
        return True
    key, whole, grouped = rule.grouped_by
    value = settings.get(key)
    if value not in (whole, grouped):
        raise NotImplementedError(f"{key} = {value!r} is not modelled; allowed are {whole!r} and {grouped!r}")
    return value == grouped


def written_experts(config: DecoderConfig, family: Family) -> dict[str, Any]:
    """What config.json says of a network's experts, by the usual keys; what the family cannot say is left out."""
    if family.experts is None:
        return {}
    router = config.router
    mixed = [router is not None and router.in_layer(layer) for layer in range(config.num_layers)]
    keys = family.experts
    layers: dict[str, Any] = {
        "all": {},
        "every_nth": {"decoder_sparse_step": 1, "mlp_only_layers": [n for n, found in enumerate(mixed) if not found]},
        "listed": {"mlp_layer_types": ["sparse" if found else "dense" for found in mixed]},
        "after_dense": {"first_k_dense_replace": mixed.index(True) if any(mixed) else len(mixed)},
    }[keys.layers]
    sizes = config.experts
    if sizes is None:
        return layers
    shared = {} if keys.shared is None else {keys.shared: sizes.shared_size}
    if keys.shared == "n_shared_experts":
        shared = {keys.shared: sizes.shared_size // sizes.inner_size}
    own = {"num_experts": sizes.num_experts, "num_experts_per_tok": sizes.per_token, keys.size: sizes.inner_size}
    own |= {} if keys.clamp is None else {keys.clamp: sizes.clamp}
    return layers | own | shared | _written_rule(sizes, family.running.router if family.running else None)


def _written_rule(sizes: ExpertSizes, rule: RouterRule | None) -> dict[str, Any]:
    if rule is None:
        return {}
    found: dict[str, Any] = {}
    if isinstance(rule.renormalised, str):
        found[rule.renormalised] = sizes.renormalised
    if rule.scale is not None:
        found[rule.scale] = sizes.scale
    if rule.grouped_by is not None:
        key, whole, grouped = rule.grouped_by
        found[key] = grouped if sizes.groups > 1 else whole
    if rule.groups is not None:
        found |= zip(rule.groups, (sizes.groups, sizes.groups_per_token), strict=True)
    return found
