"""What a named draft costs, and how many bits it reads."""

from __future__ import annotations

import dataclasses

from hwmodels import (
    ALL_LAYER_MATRICES,
    Architecture,
    DraftCost,
    Footprint,
    uniform_footprint,
)
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.speculation.head_shapes import EAGLE3_VOCABULARY, eagle_head, multi_token_head
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.draft_kinds import SELF
from jaxspec.studies.advise.config import HEADS, LOOKUP, AdviseConfig
from jaxspec.studies.expert_pricing import copy_by_scheme, with_expert_bits
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_draft
from jaxspec.suggestions import hint

__all__ = ["named_draft", "read_widths"]


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
    try:
        resolve_architecture(name, None)
    except InputError as error:
        known = hint(name, (LOOKUP, SELF, *HEADS), quote=False)
        raise InputError(f"draft {name!r} is no head, lookup or network{known}; as a network: {error}") from error
    own = resolve_draft(config, name, config.architecture, target, max(config.context + 1, config.prompt_tokens))
    return DraftCost(architecture=own, statement=f"a network, {name}")


def read_widths(config: AdviseConfig) -> Footprint:
    """Bits read: of the target as its scheme says, of the draft those given, or 16; its cache is not compressed.

    A compressed copy is read as the scheme says. Routed experts have bits of their own where those are given.
    """
    return with_expert_bits(_widths(config), config.expert_bits)


def _widths(config: AdviseConfig) -> Footprint:
    scheme = find_scheme(config.scheme)
    stored = scheme.expected_footprint(knob_defaults(scheme))
    if config.draft == SELF:
        if config.draft_bits is None:
            return stored
        own = dict.fromkeys(ALL_LAYER_MATRICES, config.draft_bits)
        return dataclasses.replace(stored, draft_weight_bits=stored.draft_weight_bits | own)
    bits = UNCOMPRESSED_BITS if config.draft_bits is None else config.draft_bits
    return dataclasses.replace(
        stored,
        draft_weight_bits=uniform_footprint(bits).draft_weight_bits,
        draft_kv_bits=UNCOMPRESSED_BITS,
    )
