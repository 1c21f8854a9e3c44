"""Result of `jaxspec tree` for one device."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.results import UNKNOWN, Quantity, Record, quantity_field
from jaxspec.results.network_results import HeadlineIntervals, MeasuredResult
from jaxspec.results.records import flat_table

__all__ = [
    "BestTree",
    "ContextChoice",
    "ContextRow",
    "CurvePoint",
    "FittedLaw",
    "Generation",
    "Growth",
    "PricedDraft",
    "Schedule",
    "ScheduleStep",
    "SearchSettings",
    "TreeProof",
    "TreeResult",
    "UsedDraft",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedDraft(Record):
    """Architecture that draft steps were priced with; None: the target's own, or nothing."""

    statement: str | None = None
    architecture: Quantity[dict] = UNKNOWN
    parameters: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsedDraft(Record):
    """What drafted."""

    one_status: ClassVar[bool] = False

    name: str | None = None
    parameters: Quantity[int] = UNKNOWN
    knobs: Quantity[dict] = UNKNOWN
    priced_draft: PricedDraft = PricedDraft()
    footprint: Quantity[dict] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(Record):
    """How trees grew."""

    name: str | None = None
    nodes: Quantity[int] = UNKNOWN
    depth: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Growth(Record):
    """The tree node by node: the first n nodes are the tree of n nodes.

    Attributes:
        parent: of each node, -1 for the root.
        rank: of each node among its siblings by the draft's likelihood.
        acceptance: share of all roots of held-out text at which a node is accepted.
    """

    one_status: ClassVar[bool] = False

    parent: list[int] = dataclasses.field(default_factory=list)
    rank: list[int] = dataclasses.field(default_factory=list)
    acceptance: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint(Record):
    """Tokens per cycle of the tree with this verification length."""

    verification_length: int = 0
    tokens_per_cycle: Quantity[float] = quantity_field(error="standard_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedLaw(Record):
    """Law of tokens per cycle, A + B ln(x - C), with its band over the curve's lengths."""

    intercept: Quantity[float] = UNKNOWN
    log_slope: Quantity[float] = UNKNOWN
    shift: Quantity[float] = UNKNOWN
    intervals: Quantity[dict] = UNKNOWN
    confidence: float | None = None
    fitted_lengths: list[int] = dataclasses.field(default_factory=list)
    r_squared: Quantity[float] = UNKNOWN
    shift_at_bound: bool | None = None
    tokens_per_cycle: Quantity[list] = UNKNOWN
    lower: Quantity[list] = UNKNOWN
    upper: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestTree(Record):
    """The fastest tree at a context, or the fastest chain, whether or not it pays.

    Attributes:
        intervals: of its numbers, with the rate of one sequence; None where nothing is known to err.
    """

    verification_length: Quantity[int] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    intervals: HeadlineIntervals | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextChoice(Record):
    """What is fastest at a context: a tree, or autoregressive decoding (a verification of one token)."""

    speculate: Quantity[bool] = UNKNOWN
    verification_length: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    best_tree: BestTree = BestTree()
    best_chain: BestTree = BestTree()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextRow(Record):
    """Times and speeds at one context; lists are by size of the tree."""

    context_tokens: int = 0
    fits: Quantity[bool] = UNKNOWN
    decision: ContextChoice = ContextChoice()
    ar_bf16_s: Quantity[float] = UNKNOWN
    ar_stored_s: Quantity[float] = UNKNOWN
    verify_s: Quantity[list] = UNKNOWN
    draft_s: Quantity[list] = UNKNOWN
    engine_s: Quantity[list] = UNKNOWN
    effective_performance: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleStep(Record):
    """Length to use from a context on."""

    from_context_tokens: Quantity[float] = UNKNOWN
    verification_length: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation(Record):
    """Generating from the first to the last context by the schedule."""

    first_context_tokens: int | None = None
    tokens: int | None = None
    tokens_per_s: Quantity[float] = UNKNOWN
    best_fixed_verification_length: Quantity[int] = UNKNOWN
    speedup_vs_best_fixed: Quantity[float] = UNKNOWN
    speedup_vs_ar: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(Record):
    """Lengths along the context; `generation` is None for a single context."""

    entries: list[ScheduleStep] = dataclasses.field(default_factory=list)
    generation: Generation | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeProof(Record):
    """Decoding of held-out prompts with one tree, beside what the ranks of the same prompts predict.

    Attributes:
        tree: why this one.
        accepted: share of cycles in which each node was accepted.
    """

    tree: str | None = None
    verification_length: Quantity[int] = UNKNOWN
    tokens_per_cycle_predicted: Quantity[float] = UNKNOWN
    tokens_per_cycle_counted: Quantity[float] = quantity_field(error="tokens_per_cycle_standard_error")
    tokens_per_cycle_gap_in_standard_errors: Quantity[float] = UNKNOWN
    same_cycles: Quantity[bool] = UNKNOWN
    cycles: Quantity[int] = UNKNOWN
    accepted: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeResult(MeasuredResult):
    """Result of the search of draft trees.

    Attributes:
        law: None where the curve has too few different points.
    """

    # Each number under its own name, whichever part it is of.
    arrange_statuses = staticmethod(flat_table)

    draft: UsedDraft = UsedDraft()
    search: SearchSettings = SearchSettings()
    growth: Growth | None = None
    curve: list[CurvePoint] = dataclasses.field(default_factory=list)
    law: FittedLaw | None = None
    contexts: list[ContextRow] = dataclasses.field(default_factory=list)
    schedule: Schedule = Schedule()
    proof: TreeProof = TreeProof()
