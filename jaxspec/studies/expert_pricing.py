"""From settings of experts to what the cost model takes: placement, routing, pool of a draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwmodels import ALL_LAYER_MATRICES, EXPERT_MATRICES, Architecture, Case, DraftCost, Footprint, Routing
from hwmodels.memory.placement import PLACEMENTS, placement_of
from hwmodels.network.routing import zipf_routing
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.pool import with_pool
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.results import Quantity, given, predicted
from jaxspec.settings.common import CommonConfig, ExpertSettings, PlacementSettings
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.release import priced_form

if TYPE_CHECKING:
    from jaxspec.models.config import DecoderConfig

__all__ = [
    "check_has_experts",
    "check_routing",
    "copy_by_scheme",
    "placed",
    "placement_name",
    "with_expert_bits",
    "with_experts",
]


def copy_by_scheme(name: str, architecture: Architecture) -> DraftCost:
    """The target's compressed copy by the default knobs of a scheme, one of which may be its pool of experts."""
    if name == RELEASED.name:
        return DraftCost()
    return with_pool(DraftCost(), architecture, knob_defaults(find_scheme(name)).get(EXPERT_POOL.name))


def with_expert_bits(footprint: Footprint, bits: Leaf) -> Footprint:
    """A footprint whose experts draft and target read at `bits` ("*b") per weight; as it is for None."""
    if bits is None:
        return footprint
    own = dict.fromkeys(EXPERT_MATRICES, bits)
    return dataclasses.replace(
        footprint,
        draft_weight_bits=footprint.draft_weight_bits | own,
        target_weight_bits=footprint.target_weight_bits | own,
    )


def placed(pricing: Case, config: PlacementSettings, device: str) -> Case:
    """With the placement and the decoders' place that the settings name.

    Raises:
        InputError: the device has no decoders, or one memory.
    """
    if config.decoder_place is not None:
        if (decoder := pricing.device.decoder) is None:
            raise InputError(
                f"decoder_place is {config.decoder_place!r}, but device {device!r} has no decoders; leave decoder_place out, "
                "or give a device with some, such as cassandra-gpu"
            )
        there = dataclasses.replace(decoder, place=config.decoder_place)
        pricing = dataclasses.replace(pricing, device=dataclasses.replace(pricing.device, decoder=there))
    if config.placement is None:
        return pricing
    if not pricing.device.spill:
        raise InputError(
            f"placement is {config.placement!r}, but device {device!r} has one memory; leave placement out, or give a device "
            "with several, such as elmoe3d-hb8"
        )
    placement = PLACEMENTS[config.placement]()
    return dataclasses.replace(pricing, device=dataclasses.replace(pricing.device, placement=placement))


def placement_name(config: PlacementSettings, pricing: Case) -> Quantity[str]:
    """Where things lie; None on a device with one memory."""
    if not pricing.device.spill:
        return predicted(None)
    return given(config.placement or placement_of(pricing.device).title)


def check_routing(config: CommonConfig, network: DecoderConfig, pricings: dict[str, Case]) -> None:
    """Raise InputError where routing is to be measured and either network has none to measure or to price."""
    if config.routing == "even":
        return
    said = f"routing is {config.routing!r}, but"
    if network.experts is None or network.experts.num_experts <= network.experts.per_token:
        raise InputError(
            f"{said} {config.model} does not choose among experts; leave it out, or give a mixture such as embedded-moe"
        )
    if not all(float(pricing.architecture.num_experts) for pricing in pricings.values()):
        raise InputError(
            f"{said} architecture {config.architecture!r} has no routed experts; leave it out, or give a mixture such as "
            "qwen3-30b-a3b, or 'own'"
        )


def check_has_experts(about: Sequence[str], architecture: Architecture, called: str) -> None:
    """Raise InputError where settings about experts came for a network that has none.

    Args:
        about: names of these settings. called: the network, as it was given.
    """
    if about and not float(architecture.num_experts):
        raise InputError(
            f"{', '.join(about)} came, but architecture {called!r} has no routed experts; leave it out, or give a mixture "
            "of experts such as qwen3-30b-a3b"
        )


def with_experts(case: Case, config: ExpertSettings, called: str, pool_share: float | None) -> Case:
    """The case with what settings say of its experts: routing, the draft's pool, and bits of kinds that have their own.

    Args:
        called: the network, as it was given.
        pool_share: the knob of the scheme; None: it has none.
    Raises:
        InputError: something about experts of a network that has none.
    """
    experts, chosen = float(case.architecture.num_experts), float(case.architecture.experts_per_token)
    about = [
        name
        for name in ("pool_fits", "expert_bits", "expert_skew", "expert_correlation")
        if getattr(config, name)  # widths of 0 are refused elsewhere
    ]
    check_has_experts(about, case.architecture, called)
    footprint = dataclasses.replace(
        case.footprint,
        **{side: getattr(case.footprint, side) | kinds for side, kinds in _released_kinds(config).items()},
    )
    if not experts:
        return dataclasses.replace(case, footprint=footprint)
    routing = Routing(correlation=config.expert_correlation)
    if config.expert_skew > 0:
        skewed = zipf_routing(config.expert_skew, num_experts=experts, experts_per_token=chosen, entries=int(experts))
        routing = dataclasses.replace(routing, popularity=skewed.popularity)
    return dataclasses.replace(
        case,
        footprint=with_expert_bits(footprint, config.expert_bits),
        draft=DraftCost() if config.pool_fits else with_pool(DraftCost(), case.architecture, pool_share),
        routing=routing,
        pool_fits=config.pool_fits,
    )


def _released_kinds(config: ExpertSettings) -> dict[str, Any]:
    """Bits by kind of the release's form, where the settings price it: of the layers where they give no other width."""
    form = priced_form(config) if getattr(config, "scheme", None) == RELEASED.name else None
    if form is None:
        return {}
    widths = {"draft_weight_bits": "draft_bits", "target_weight_bits": "verify_bits"}
    given = {side for side, name in widths.items() if getattr(config, name, None) is not None}
    own = {kind: bits for kind, bits in form.weight_bits.items() if kind not in ALL_LAYER_MATRICES}
    return {side: own if side in given else dict(form.weight_bits) for side in widths}
