"""What a named draft costs, and how many bits it reads."""

from __future__ import annotations

import dataclasses
import os

from hwmodels import (
    ALL_LAYER_MATRICES,
    EXPERT_MATRICES,
    Architecture,
    DraftCost,
    Footprint,
    catalog,
    uniform_footprint,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.speculation.head_shapes import EAGLE3_VOCABULARY, eagle_head, multi_token_head
from jaxspec.errors import InputError
from jaxspec.report.division import Divided
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.schemes import scheme_facts
from jaxspec.studies.advise.config import HEADS, LOOKUP, AdviseConfig
from jaxspec.studies.config_files import head_in_file
from jaxspec.studies.expert_pricing import copy_by_scheme, with_expert_bits
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_draft
from jaxspec.studies.release import priced_form, scheme_footprint, stored_form
from jaxspec.suggestions import hint

__all__ = ["draft_weight_bits", "file_draft", "named_draft", "read_widths"]


def named_draft(config: AdviseConfig, target: Architecture) -> DraftCost:
    """The cost of a lookup, of a head on the target, of the target's compressed copy, or of a network.

    Args:
        target: architecture of the settings' target.
    Raises:
        InputError: none of these, or a network that cannot draft for this target or be shared so.
    """
    name = config.draft
    if name == LOOKUP:
        return DraftCost(passes=0.0, statement="a lookup, which takes no time")
    if name == SELF:
        return copy_by_scheme(config.scheme, target)
    if name in HEADS:
        makers = {
            "eagle": eagle_head,
            "eagle3": lambda shape: eagle_head(shape, EAGLE3_VOCABULARY),
            "mtp": multi_token_head,
        }
        return makers[name](target)
    if head_in_file(name) is None:
        try:
            resolve_architecture(name, None)
        except InputError as error:
            known = hint(name, (LOOKUP, SELF, *HEADS), quote=False)
            raise InputError(f"draft {name!r} is no head, lookup or network{known}; as a network: {error}") from error
    return file_draft(config, name, config.architecture, target, max(config.context + 1, config.prompt_tokens))


def file_draft(config: Divided, name: str, target: str, architecture: Architecture, tokens: float) -> DraftCost:
    """The cost of a network by catalog name or config.json, or of the head that a config.json describes.

    Args:
        others: see `resolve_draft`.
    Raises:
        InputError: neither, a network that cannot draft for this target or be shared so, or a head that is not priced.
    """
    head = head_in_file(name)
    if head is None:
        own = resolve_draft(config, name, target, architecture, tokens)
        return DraftCost(architecture=own, statement=f"a network, {name}")
    if head.drafts_as is None:
        raise InputError(
            f"draft {name!r} is {head.title} ({head.sign}), which is not priced; give a kind that is: {', '.join(HEADS)}"
        )
    if head.drafts_as == "mtp":
        return multi_token_head(architecture)
    try:
        own = catalog.head_architecture(head, architecture, where=name)
    except (NotImplementedError, ValueError) as error:
        raise InputError(f"draft {name!r}: {error}") from error
    rows = own.vocab_size if head.vocabulary is None else head.vocabulary
    cost = eagle_head(own, float(rows))
    assert cost.architecture is not None  # a head is no copy of its target
    made = dataclasses.replace(cost.architecture, num_layers=own.num_layers)
    whole = float(rows == float(architecture.vocab_size))
    said = f"{head.title}: a layer of its own sizes, with a projection and a head of {rows:,.0f} rows"
    return dataclasses.replace(cost, architecture=made, shares_ends=whole, maps_logits=1.0 - whole, statement=said)


def read_widths(config: AdviseConfig) -> Footprint:
    """Bits read: of the target as its scheme says, of the draft those given, or 16; its cache is not compressed.

    A compressed copy is read as the scheme says. Routed experts have bits of their own where those are given.
    """
    return with_expert_bits(_widths(config), config.expert_bits)


def _widths(config: AdviseConfig) -> Footprint:
    scheme = scheme_facts(config.scheme)
    stored = scheme_footprint(config, {spec.name: spec.default for spec in scheme.knob_specs} if scheme else {})
    if config.draft == SELF:
        if config.draft_bits is None:
            return stored
        own = dict.fromkeys(ALL_LAYER_MATRICES, config.draft_bits)
        return dataclasses.replace(stored, draft_weight_bits=stored.draft_weight_bits | own)
    bits = draft_weight_bits(config.draft) if config.draft_bits is None else None
    if config.draft == "mtp" and config.draft_bits is None and priced_form(config) is not None:
        # One dense layer, stored as those of the network: what experts are there, its feed-forward network is here.
        experts = {kind.removeprefix("expert_"): stored.target_weight_bits[kind] for kind in EXPERT_MATRICES}
        narrow = {kind: min(width, stored.target_weight_bits[kind]) for kind, width in experts.items()}
        bits = stored.target_weight_bits | narrow
    plain = uniform_footprint(UNCOMPRESSED_BITS if config.draft_bits is None else config.draft_bits)
    return dataclasses.replace(
        stored, draft_weight_bits=bits or plain.draft_weight_bits, draft_kv_bits=UNCOMPRESSED_BITS
    )


def draft_weight_bits(name: str) -> dict[str, float] | None:
    """Bits per weight by kind of a draft whose config.json states a quantized form; None: 16."""
    form = stored_form(name)
    return dict(form.weight_bits) if form is not None and os.path.exists(name) else None
