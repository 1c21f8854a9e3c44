"""What a serving engine spends on a cycle beside its kernels, where its terms are known."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels import Device, DraftCost, EngineTerms, catalog
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.engine_terms import NO_ENGINE
from jaxspec.results import calibrated
from jaxspec.results.intervals import EngineUsed
from jaxspec.studies.headline_intervals import interval_notes

__all__ = [
    "OTHER_DRAFTS",
    "SMALL_NETWORK",
    "engine_notes",
    "engine_scatter",
    "engine_terms",
    "engine_used",
    "kind_of_draft",
    "noted",
]

#: Kind of draft whose measured speedups lie nearest to predictions,
SMALL_NETWORK = "small network"

#: and all others, of heads and lookups.
OTHER_DRAFTS = "other drafts"


def engine_terms(engine: str | None) -> EngineTerms:
    """Terms of an engine by name; none for None, and for engines whose terms nobody has fitted."""
    return catalog.engine(engine) if engine in catalog.engine_names() else NO_ENGINE


def engine_scatter(engine: str | None, draft: str = OTHER_DRAFTS) -> float:
    """Standard deviation of log speedup about predictions with an engine's terms; 0 without any."""
    return catalog.engine_scatter(engine).get(draft, 0.0) if engine in catalog.engine_names() else 0.0


def kind_of_draft(cost: DraftCost) -> str:
    """Which scatter counts for a draft: a network with embedding and head of its own is a small one, an EAGLE-3 head is not."""
    own = cost.architecture is not None and not float(cost.shares_ends) and not float(cost.maps_logits)
    return SMALL_NETWORK if own else OTHER_DRAFTS


def engine_used(engine: str | None) -> EngineUsed | None:
    """What a result says of an engine; None where none was named."""
    if engine is None:
        return None
    if engine not in catalog.engine_names():
        return EngineUsed(name=engine)
    terms = {name: calibrated(value) for name, value in dataclasses.asdict(catalog.engine(engine)).items()}
    return EngineUsed(name=engine, terms=terms, sources=dict(catalog.engine_sources(engine)))


def engine_notes(engine: str | None, *, prompts: bool = False) -> list[str]:
    """Sentences for a reader of times that an engine has a part in.

    Args:
        prompts: whether prompts are processed beside decoding.
    """
    if engine is None:
        return []
    if engine not in catalog.engine_names():
        return [f"the time that {engine} spends on a cycle outside its kernels is not known; none is added"]
    terms = catalog.engine(engine)
    alone = "nothing is added to autoregressive steps"
    if prompts:
        alone = (
            f"{float(terms.prompt_token_s) * 1e6:.3g} µs for each prompt token processed during decoding; only this last term "
            "is added to autoregressive steps"
        )
    of_heads = _ms(terms.draft_pass_s + terms.mapped_pass_s)
    return [
        f"{engine} adds to each cycle (calibrated): {_ms(terms.cycle_s)}, {_ms(terms.draft_layer_s)} for each layer of the "
        f"draft, {_ms(terms.draft_pass_s)} for each pass of the draft ({of_heads} for an EAGLE-3 head) "
        f"and {float(terms.drafted_token_s) * 1e6:.3g} µs for each drafted token of a sequence; {alone}"
    ]


def _ms(seconds: Leaf) -> str:
    return f"{float(seconds) * 1e3:.3g} ms"


def noted(fields: dict[str, Any], device: Device, engine: str | None, *, prompts: bool = False) -> dict[str, Any]:
    """Fields of a result with sentences on errors of its times and on its engine among its "notes".

    Args:
        fields: of `jaxspec.studies.kernel_notes`.
        engine, prompts: see `engine_notes`.
    """
    more = [*interval_notes(device), *engine_notes(engine, prompts=prompts)]
    return fields | {"notes": [*fields["notes"], *more]}
