"""What a serving engine spends on a cycle beside its kernels, where its terms are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwmodels import (
    ALL_LAYER_MATRICES,
    EXPERT_MATRICES,
    Architecture,
    Case,
    Device,
    DraftCost,
    EngineTerms,
    Footprint,
    Routing,
    catalog,
)
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter
from hwmodels.compute.roofline import unit_of
from hwmodels.memory.placement import PLACEMENTS, placement_of
from hwmodels.network.routing import zipf_routing
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.draft_cost import with_pool
from hwmodels.speculation.engine_logs import NO_ENGINE
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.results import Quantity, Status, calibrated, given, predicted
from jaxspec.results.network_results import EngineUsed
from jaxspec.settings.common import CommonConfig, ExpertSettings, PlacementSettings
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.feasibility import kernel_notes
from jaxspec.studies.headline_intervals import interval_notes
from jaxspec.studies.release import priced_form

if TYPE_CHECKING:
    from jaxspec.models.config import DecoderConfig

__all__ = [
    "OTHER_DRAFTS",
    "SMALL_NETWORK",
    "check_has_experts",
    "check_routing",
    "copy_by_scheme",
    "engine_notes",
    "engine_scatter",
    "engine_status",
    "engine_terms",
    "engine_used",
    "kind_of_draft",
    "noted",
    "notes_of",
    "placed",
    "placement_name",
    "with_expert_bits",
    "with_experts",
]

# From settings of experts to what the cost model takes: placement, routing, pool of a draft.


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


_TERMS = tuple(field.name for field in dataclasses.fields(EngineTerms))

#: How the source of a term begins that was fitted to measured cycles.
_FITTED = ("fitted", "calibrated")

_NOT_IN_FILE = "0: the device's file does not give it"

#: Kind of draft whose measured speedups lie nearest to predictions,
SMALL_NETWORK = "small network"

#: and all others, of heads and lookups.
OTHER_DRAFTS = "other drafts"

#: Of any draft, on devices whose kernels nobody measured, and which neither a unit nor instructions of rows explain.
UNMEASURED_KERNELS = "unmeasured kernels"


def engine_terms(engine: str | None, device: str | None = None) -> EngineTerms:
    """Terms of an engine by name; none for None, and for engines whose terms nobody has fitted.

    Args:
        device: a name of the catalog, or a file, whose measured terms of this package count; None: the catalog's do.
    """
    known = _known(engine, device)
    return NO_ENGINE if known is None else known[0]


def _known(engine: str | None, device: str | None) -> tuple[EngineTerms, Mapping[str, str]] | None:
    """Terms and their sources; those of this package are a machine's, and stand in the file that measured it."""
    if engine == catalog.OWN_ENGINE and device is not None:
        entry = catalog.device_entry(device)
        if entry.engine_terms is not None:
            sources = {name: entry.sources.get(f"engine_terms.{name}", _NOT_IN_FILE) for name in _TERMS}
            return entry.engine_terms, sources
    if engine not in catalog.engine_names():
        return None
    return catalog.engine(engine), catalog.engine_sources(engine)


def engine_scatter(engine: str | None, draft: str = OTHER_DRAFTS, *, device: Device) -> float:
    """Standard deviation of log speedup about predictions with an engine's terms; 0 without any.

    Args:
        draft: see `kind_of_draft`.
        device: a machine that was measured says itself how far cycles of this package err.
    """
    if engine == catalog.OWN_ENGINE:
        return loop_scatter(device)
    known = catalog.engine_scatter(engine) if engine in catalog.engine_names() else {}
    measured = unit_of(device).measured
    unexplained = device.matrix_unit is None if measured is None else measured.lent
    if unexplained and device.extra_rows is None and UNMEASURED_KERNELS in known:
        return known[UNMEASURED_KERNELS]
    return known.get(draft, 0.0)


def kind_of_draft(cost: DraftCost) -> str:
    """Which scatter counts for a draft: a network with layers, embedding and head of its own is a small one, heads are not."""
    if cost.architecture is None or float(cost.shares_ends) or float(cost.maps_logits):
        return OTHER_DRAFTS
    return SMALL_NETWORK if float(cost.architecture.num_layers) else OTHER_DRAFTS


def engine_used(engine: str | None, device: str | None = None) -> EngineUsed | None:
    """What a result says of an engine; None where none was named. Arguments as of `engine_terms`."""
    if engine is None:
        return None
    known = _known(engine, device)
    if known is None:
        gap = catalog.engine_gap(engine)
        return EngineUsed(name=engine, sources={} if gap is None else dict(catalog.engine_sources(engine)))
    terms, sources = known
    status = {name: calibrated if source.startswith(_FITTED) else given for name, source in sources.items()}
    numbers = {name: status[name](value) for name, value in dataclasses.asdict(terms).items()}
    return EngineUsed(name=engine, terms=numbers, sources=dict(sources))


def engine_status(used: EngineUsed | None) -> Status | None:
    """The status of what an engine adds to a cycle; None where nothing is known of it, so that nothing is added.

    Args:
        used: of `engine_used`. Terms of which one was fitted are calibrated, those that are all assumed are input.
    """
    if used is None or not used.terms:
        return None
    return "calibrated" if any(term.status == "calibrated" for term in used.terms.values()) else "input"


def engine_notes(engine: str | None, *, prompts: bool = False, device: str | None = None) -> list[str]:
    """Sentences for a reader of times that an engine has a part in.

    Args:
        prompts: whether prompts are processed beside decoding.
        device: as of `engine_terms`.
    """
    said = notes_of(engine_used(engine, device), prompts=prompts)
    if device is not None and catalog.kernels_engine(device, engine) != engine:
        said = [f"kernels of {engine} were not measured on {device}: the device's own numbers count", *said]
    return said


def notes_of(used: EngineUsed | None, *, prompts: bool = False) -> list[str]:
    """The same from what a result says of its engine."""
    if used is None:
        return []
    what = f"the time that {used.name} spends on a cycle outside its kernels is"
    if not used.terms:
        gap = next(iter(used.sources.values()), None)
        return [f"{what} not known{'' if gap is None else f' ({gap})'}; none is added"]
    status = engine_status(used)
    if status != "calibrated" and not any(term.number for term in used.terms.values()):
        return [f"{what} assumed to be 0; `jaxspec calibrate` measures it and writes it into the machine's device file"]
    terms = {name: term.number or 0.0 for name, term in used.terms.items()}
    alone = "nothing is added to autoregressive steps"
    if prompts:
        alone = (
            f"{terms['prompt_weight_s'] * 1e15:.3g} µs per billion of the target's weights for each prompt token processed "
            "during decoding; only this last term is added to autoregressive steps"
        )
    further = terms.get("further_device_s", 0.0)
    each = f", {_ms(further)} for each further device that shares matrices" if further else ""
    of_layer, of_token = terms.get("drafted_token_layer_s", 0.0), f"{terms['drafted_token_s'] * 1e6:.3g} µs"
    if of_layer:
        alone_too = f"{of_token} and " if terms["drafted_token_s"] else ""
        of_token = f"{alone_too}{of_layer * 1e6:.3g} µs per layer of the draft"
    of_cycle = _ms(terms["cycle_s"] + terms.get("launched_cycle_s", 0.0))
    of_lookup, of_text = (terms.get(f"lookup_{what}_s", 0.0) for what in ("cycle", "sequence"))
    if of_lookup or of_text:
        each_text = f"{of_text * 1e6:.3g} µs for each sequence"
        of_cycle = f"{of_cycle} (of a lookup {_ms(terms['cycle_s'] + of_lookup)} and {each_text})"
    of_pass, of_heads = terms["draft_pass_s"], _ms(terms["draft_pass_s"] + terms["mapped_pass_s"])
    return [
        f"{used.name} adds to each cycle ({status}): {of_cycle}, {_ms(terms['draft_layer_s'])} for each layer "
        f"of the draft, {_ms(of_pass)} for each pass of the draft ({of_heads} for an EAGLE-3 head) and "
        f"{of_token} for each drafted token of a sequence{each}; {alone}"
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def noted(
    device: Device,
    footprints: Sequence[Footprint],
    engine: str | None,
    *,
    about: Sequence[str] = (),
    steps: Sequence[str] = (),
    prompts: bool = False,
    named: str | None = None,
    **kernels: Any,
) -> dict[str, Any]:
    """The fields `kernel_widths` and `notes` of a result: what a study says, kernels, steps, errors of times, the engine.

    Args:
        footprints, kernels: see `kernel_notes`.
        engine, prompts: see `engine_notes`.
        about, steps: sentences of the study before those of kernels, and behind them.
        named: the device's name or file, see `engine_terms`.
    """
    fields = kernel_notes(device, footprints, **kernels)
    more = [*interval_notes(device, engine), *engine_notes(engine, prompts=prompts, device=named)]
    return fields | {"notes": [*about, *fields["notes"], *steps, *more]}
