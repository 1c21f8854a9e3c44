"""Settings of networks with routed experts, and of where things lie: what a prediction and a sweep share."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jaxspec.registries import known_names
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.draft import knob_values
from jaxspec.settings.fields import Among, setting
from jaxspec.settings.knobs import EXPERT_POOL

__all__ = ["POOLS_UNUSED", "DecoderPlace", "ExpertSettings", "PlacementSettings"]

#: Our own placements.
_PLACEMENTS = ("in_order", "experts_first", "external", "expert_cache", "bit_slices", "draft_copies", "by_mode")

if TYPE_CHECKING:
    #: A name of `hwmodels.memory.placement.PLACEMENTS`.
    PlacementName = str
else:
    #: The same, of all that are registered.
    PlacementName = Annotated[str, Among(lambda: known_names("placement", _PLACEMENTS))]

#: Names of `hwmodels.decoders.decoder.PLACES`, likewise.
DecoderPlace = Literal["dma", "l2", "array_edge"]


@dataclasses.dataclass(frozen=True)
class PlacementSettings(Settings):
    """Where things lie in a device."""

    heading: ClassVar[str] = "Memories and experts"

    placement: PlacementName | None = setting(
        None,
        "Which memory holds KV, weights and experts, on a device with several memories.",
        unset="the device's own, or KV first, then dense weights, then experts",
    )
    decoder_place: DecoderPlace | None = setting(
        None,
        "Where the device's decoders sit: in the DMA or memory controller before the last memory on the chip, between that "
        "(L2) and the links, or at the compute unit.",
        unset="the device's own",
    )


@dataclasses.dataclass(frozen=True)
class ExpertSettings(PlacementSettings):
    """How experts are stored, chosen and cached."""

    heading: ClassVar[str] = "Memories and experts"

    pool_fits: bool = setting(
        False, "Let a draft step choose among the most popular experts only, as many as fit the first memory."
    )
    expert_bits: float | None = setting(
        None,
        "Bits per weight of routed experts, stored and read by draft and verification (MXFP4: 4.25).",
        low=0,
        high=64,
        above=True,
        unset="the scheme's",
    )
    expert_skew: float = setting(
        0.0, "Unevenness of routing: exponent of the power law of the experts' popularity.", low=0, high=10
    )
    expert_correlation: float = setting(
        0.0, "Correlation between the experts chosen by neighbouring tokens of a sequence.", low=0, high=1
    )


def _no_pool(config: Any) -> str | None:
    if EXPERT_POOL.name in knob_values(config):
        return None
    return f"the draft of scheme {config.scheme} chooses among all experts"


#: Settings of a draft's pool that are refused where they change nothing, for settings with the knobs of a scheme.
POOLS_UNUSED = (
    Unused(
        (EXPERT_POOL.name,),
        lambda config: "pool_fits says how many experts a draft has" if config.pool_fits else None,
    ),
    Unused(("pool_fits",), _no_pool),
)
