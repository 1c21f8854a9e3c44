"""What a named draft costs, how many bits it reads, and what engines call it."""

from __future__ import annotations

import dataclasses

from hwmodels import Architecture, DraftCost, Footprint, uniform_footprint
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.speculation.head_shapes import EAGLE3_VOCABULARY, eagle_head, multi_token_head
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.studies.advise.config import HEADS, LOOKUP, AdviseConfig
from jaxspec.studies.engine_flags import ServedDraft
from jaxspec.studies.measured.pricing import resolve_architecture
from jaxspec.suggestions import hint

__all__ = ["named_draft", "read_widths", "served_draft"]


def named_draft(name: str, target: Architecture) -> DraftCost:
    """The cost of a lookup, of a head on the target, or of a network.

    Raises:
        InputError: none of these.
    """
    if name == LOOKUP:
        return DraftCost(passes=0.0, statement="a lookup, which takes no time")
    if name in HEADS:
        makers = {
            "eagle": eagle_head,
            "eagle3": lambda shape: eagle_head(shape, EAGLE3_VOCABULARY),
            "mtp": multi_token_head,
        }
        return makers[name](target)
    try:
        own = resolve_architecture(name, None)
    except InputError as error:
        known = hint(name, (LOOKUP, *HEADS), quote=False)
        raise InputError(f"draft {name!r} is no head, lookup or network{known}; as a network: {error}") from error
    return DraftCost(architecture=own, statement=f"a network, {name}")


def read_widths(config: AdviseConfig) -> Footprint:
    """Bits read: of the target as its scheme says, of the draft those given, or 16; its cache is not compressed."""
    scheme = find_scheme(config.scheme)
    stored = scheme.expected_footprint(knob_defaults(scheme))
    bits = UNCOMPRESSED_BITS if config.draft_bits is None else config.draft_bits
    return dataclasses.replace(
        stored,
        draft_weight_bits=uniform_footprint(bits).draft_weight_bits,
        draft_kv_bits=UNCOMPRESSED_BITS,
    )


def served_draft(config: AdviseConfig) -> ServedDraft:
    """The draft for an engine's flags."""
    if config.kind in (LOOKUP, "mtp"):
        return ServedDraft(config.kind)
    unnamed = f"{config.draft} head of {config.architecture}" if config.kind in HEADS else config.draft
    return ServedDraft(config.kind, config.draft_weights or unnamed)
