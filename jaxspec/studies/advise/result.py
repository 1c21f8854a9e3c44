"""Result of `jaxspec advise` for one device."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.results import UNKNOWN, Quantity, Record
from jaxspec.results.network_results import NO_ENDS, Ends, EngineUsed, PricedResult
from jaxspec.results.records import rest_table

__all__ = ["AdviseResult", "AdvisedBatch", "AdvisedDraft", "AdvisedTree", "AdvisedWorkload", "ScheduleRange"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvisedWorkload(Record):
    """Workload that is priced; batches stand in the rows."""

    context_tokens: Quantity[int] = UNKNOWN
    prompt_tokens: Quantity[int] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvisedDraft(Record):
    """What drafts.

    Attributes:
        kind: as engines call it.
        priced_as: what a draft step was priced as.
        acceptance_source: where the acceptance comes from.
        branch_acceptance: chances of further tokens than the likeliest, for trees; None: chains alone.
    """

    one_status: ClassVar[bool] = False

    name: str | None = None
    kind: str | None = None
    priced_as: str | None = None
    conditional: Quantity[list] = UNKNOWN
    acceptance_source: str | None = None
    branch_acceptance: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvisedTree(Record):
    """The best tree for a batch.

    Attributes:
        nodes: drafted tokens. depth: draft steps. branching: most children of a node. parent: of each node, -1 for the root.
        speedup_vs_stored_ar, interval: over decoding what is stored.
        pays: whether it is faster than any chain, and than no draft.
    """

    nodes: Quantity[int] = UNKNOWN
    depth: Quantity[int] = UNKNOWN
    branching: Quantity[int] = UNKNOWN
    parent: list[int] = dataclasses.field(default_factory=list)
    tokens_per_cycle: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    interval: Ends = NO_ENDS
    pays: Quantity[bool] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvisedBatch(Record):
    """Advice for one batch.

    Attributes:
        context_tokens: those of the result's workload.
        draft_length: 0: do not speculate.
        tokens_per_cycle, cycle_s, tokens_per_s, speedup_vs_*: with that length; of all sequences where they decode together.
        interval, tokens_per_s_interval: of speedup_vs_stored_ar and tokens_per_s.
        best_draft: the best length of 1 or more, be it chosen or not, and its speedup with its interval.
        probability_pays: that speculation with that length is faster than decoding what is stored without it; unknown where
            nothing is known to err.
        speedups: over decoding what is stored, of draft lengths 1, 2, ...
        time_by_cause: seconds of a cycle, by part and cause.
        tree: the best tree; None where chains alone were considered.
    """

    batch: int = 0
    context_tokens: int = 0
    draft_length: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    tokens_per_s_interval: Ends = NO_ENDS
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    interval: Ends = NO_ENDS
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    best_draft_length: Quantity[int] = UNKNOWN
    best_draft_speedup: Quantity[float] = UNKNOWN
    best_draft_interval: Ends = NO_ENDS
    probability_pays: Quantity[float] = UNKNOWN
    speedups: Quantity[list] = UNKNOWN
    time_by_cause: Quantity[dict] = UNKNOWN
    fits: Quantity[bool] = UNKNOWN
    tree: AdvisedTree | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleRange(Record):
    """Draft length of a range of batches, both ends included; 0: do not speculate."""

    first: Quantity[int] = UNKNOWN
    last: Quantity[int] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdviseResult(PricedResult):
    """Advice for one device and one context.

    Attributes:
        release: as of `PredictResult`.
        speculate: whether a draft pays at any of the batches.
        single_draft_length: best one length for all batches, by the mean of log speedup; 0: none.
        schedule: draft length by batch.
        interval_covers, interval_statement: errors that intervals hold; none: nothing is known to err.
        engines: engine -> its settings, as files hold them.
        commands: engine -> how it is started.
    """

    arrange_statuses = staticmethod(rest_table)

    engine: EngineUsed | None = None
    scheme: Quantity[str] = UNKNOWN
    release: str | None = None
    workload: AdvisedWorkload = AdvisedWorkload()
    draft: AdvisedDraft = AdvisedDraft()
    speculate: Quantity[bool] = UNKNOWN
    single_draft_length: Quantity[int] = UNKNOWN
    schedule: list[ScheduleRange] = dataclasses.field(default_factory=list)
    by_batch: list[AdvisedBatch] = dataclasses.field(default_factory=list)
    interval_coverage: float | None = None
    interval_covers: list[str] = dataclasses.field(default_factory=list)
    interval_statement: str | None = None
    engines: dict[str, str] = dataclasses.field(default_factory=dict)
    commands: dict[str, str] = dataclasses.field(default_factory=dict)
    kernel_widths: dict[str, Any] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
