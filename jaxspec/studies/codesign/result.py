"""Result of `jaxspec codesign`: the design before, the proposal, what limits it, and the way there."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import UNKNOWN, Quantity, Record, Result
from jaxspec.results.network_results import EngineUsed, PricedNumber

__all__ = ["BudgetUse", "CodesignResult", "DesignRow", "LawRow", "StartRow", "VariableRow"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariableRow(Record):
    """One variable: its ends, its values, and what a percent of it is worth at the proposal.

    Attributes:
        step: values are its multiples; None: any value.
        elasticity: percent of the objective per percent of the variable, smoothed as the search has it.
        per_mm2, per_w: percent of the objective for one mm2 more of die, or one watt more, spent on this variable alone; None
            where it takes none.
        at: "low" or "high" at an end, "" between.
    """

    name: str = ""
    low: float = 0.0
    high: float = 0.0
    scale: str = "log"
    step: float | None = None
    before: Quantity[float] = UNKNOWN
    after: Quantity[float] = UNKNOWN
    elasticity: Quantity[float] = UNKNOWN
    per_mm2: Quantity[float] = UNKNOWN
    per_w: Quantity[float] = UNKNOWN
    at: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetUse(Record):
    """One limit.

    Attributes:
        active: whether the proposal reaches it within half a percent.
        multiplier: percent of the objective for a percent more of the budget, by the slopes at the proposal; 0 where it is not
            reached, None where no design keeps every limit.
    """

    name: str = ""
    limit: Quantity[float] = UNKNOWN
    before: Quantity[float] = UNKNOWN
    after: Quantity[float] = UNKNOWN
    active: bool = False
    multiplier: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignRow(Record):
    """Numbers of a design, exactly evaluated.

    Attributes:
        feasible: whether it keeps every limit.
        area_mm2, power_w, price: None where neither the device nor a cost says anything of them.
    """

    feasible: bool = False
    tokens_per_s: Quantity[float] = UNKNOWN
    tokens_per_j: Quantity[float] = UNKNOWN
    draft_tokens: Quantity[float] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    acceptance: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    area_mm2: Quantity[float] = UNKNOWN
    power_w: Quantity[float] = UNKNOWN
    bandwidth_gb_per_s: Quantity[float] = UNKNOWN
    price: Quantity[float] = UNKNOWN
    held_share: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class LawRow(Record):
    """The law of acceptance: its origin, and errors of alpha_token on its points.

    Attributes:
        left_out_error: of each point by the law fitted to all others; mean_error: of the points about their mean.
    """

    source: str = ""
    law_status: str = "input"
    points: int = 0
    rms_error: float | None = None
    largest_error: float | None = None
    left_out_error: float | None = None
    mean_error: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartRow(Record):
    """One start: objective (natural logarithm) and largest excess over a limit (likewise) at each question."""

    objective: list[float] = dataclasses.field(default_factory=list)
    excess: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodesignResult(Result):
    """A co-design altogether.

    Attributes:
        gain: objective of the proposal over that of the design before; None where no design keeps the limits.
        relaxed_objective: best of the search before hardening, smoothed: what rounding and smoothing took.
        questions, evaluations: values with gradients, and exact values, that the search asked for.
        costs: by what they are of, as given.
        inputs: SHA-256 of every file that the configuration names.
        engine: whose terms are in the times; None: kernels alone.
        kernel_widths, notes: what a reader of the numbers should know; see `jaxspec.studies.feasibility`.
    """

    schema_version: int = 1
    architecture: str = ""
    device: str = ""
    scheme: str = ""
    objective: str = "tokens_per_s"
    gain: Quantity[float] = UNKNOWN
    before: DesignRow = DesignRow()
    after: DesignRow = DesignRow()
    variables: list[VariableRow] = dataclasses.field(default_factory=list)
    budgets: list[BudgetUse] = dataclasses.field(default_factory=list)
    costs: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    law: LawRow = LawRow()
    relaxed_objective: Quantity[float] = UNKNOWN
    starts: list[StartRow] = dataclasses.field(default_factory=list)
    questions: int = 0
    evaluations: int = 0
    device_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    directory: str = ""
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    engine: EngineUsed | None = None
    kernel_widths: dict[str, Any] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def ends_with(self) -> str:
        """Result of the search: where no design keeps the limits, the one that exceeds them least."""
        return "proposal" if self.after.feasible else "nearest design"
