"""From settings of experts to what the cost model takes: placement, routing, pool of a draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.struct

from hwmodels import ALL_LAYER_MATRICES, EXPERT_MATRICES, Architecture, Device, DraftCost, Footprint, Routing, Workload
from hwmodels.memory.placement import PLACEMENTS, placement_of
from hwmodels.network.routing import zipf_routing
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.pool import fitting_pool
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.results import Quantity, given, predicted
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.experts import ExpertSettings, PlacementSettings
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.release import priced_form
from jaxspec.tuning.objective import Pricing, with_pool

__all__ = [
    "ExpertPricing",
    "check_has_experts",
    "check_routing",
    "copy_by_scheme",
    "placed",
    "placement_name",
    "resolve_experts",
    "with_expert_bits",
]


@flax.struct.dataclass
class ExpertPricing:
    """How experts are chosen and stored; every field but the last is a leaf, or a tree of leaves."""

    routing: Routing
    pool_share: Leaf = None  # of a draft step's pool, from a token's own number of experts (0) to all (1); None: all
    bits: Leaf = None  # of an expert's weight; None: the scheme's
    draft_kinds: dict[str, Leaf] | None = None  # bits of kinds of weight that have their own, as releases store them
    target_kinds: dict[str, Leaf] | None = None  # likewise
    pool_fits: bool = flax.struct.field(pytree_node=False, default=False)  # as many as the first memory holds instead

    def footprint(self, footprint: Footprint) -> Footprint:
        """A footprint with the own bits of kinds, and of experts."""
        footprint = dataclasses.replace(
            footprint,
            draft_weight_bits=footprint.draft_weight_bits | (self.draft_kinds or {}),
            target_weight_bits=footprint.target_weight_bits | (self.target_kinds or {}),
        )
        return with_expert_bits(footprint, self.bits)

    def draft_cost(
        self, device: Device, architecture: Architecture, *, workload: Workload, footprint: Footprint
    ) -> DraftCost:
        """The draft, a compressed copy of the target that chooses among its pool."""
        if not self.pool_fits:
            return with_pool(DraftCost(), architecture, self.pool_share)
        parts = {"workload": workload, "footprint": footprint, "routing": self.routing}
        return DraftCost(pool_experts=fitting_pool(device, architecture, **parts))


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


def placed(pricing: Pricing, config: PlacementSettings, device: str) -> Pricing:
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


def placement_name(config: PlacementSettings, pricing: Pricing) -> Quantity[str]:
    """Where things lie; None on a device with one memory."""
    if not pricing.device.spill:
        return predicted(None)
    return given(config.placement or placement_of(pricing.device).title)


def check_routing(config: CommonConfig, network: DecoderConfig, pricings: dict[str, Pricing]) -> None:
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


def resolve_experts(
    config: ExpertSettings, architecture: Architecture, called: str, pool_share: float | None
) -> ExpertPricing:
    """What settings say of a network's experts.

    Args:
        pool_share: the knob of the scheme; None: it has none.
    Raises:
        InputError: something about experts of a network that has none.
    """
    experts, chosen = float(architecture.num_experts), float(architecture.experts_per_token)
    about = [
        name
        for name in ("pool_fits", "expert_bits", "expert_skew", "expert_correlation")
        if getattr(config, name)  # widths of 0 are refused elsewhere
    ]
    check_has_experts(about, architecture, called)
    kinds = _released_kinds(config)
    if not experts:
        return ExpertPricing(Routing(), **kinds)
    routing = Routing(correlation=config.expert_correlation)
    if config.expert_skew > 0:
        found = zipf_routing(config.expert_skew, num_experts=experts, experts_per_token=chosen, entries=int(experts))
        routing = dataclasses.replace(routing, popularity=found.popularity)
    return ExpertPricing(routing, pool_share, config.expert_bits, pool_fits=config.pool_fits, **kinds)


def _released_kinds(config: ExpertSettings) -> dict[str, Any]:
    """Bits by kind of the release's form, where the settings price it: of the layers where they give no other width."""
    form = priced_form(config) if getattr(config, "scheme", None) == RELEASED.name else None
    if form is None:
        return {}
    widths = {"draft_kinds": "draft_bits", "target_kinds": "verify_bits"}
    given = {side for side, name in widths.items() if getattr(config, name, None) is not None}
    own = {kind: bits for kind, bits in form.weight_bits.items() if kind not in ALL_LAYER_MATRICES}
    return {side: own if side in given else dict(form.weight_bits) for side in widths}
