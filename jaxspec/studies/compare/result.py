"""Result of `jaxspec compare` for one device."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.results import UNKNOWN, Quantity, Record, quantity_field
from jaxspec.results.network_results import AcceptanceRates, Ends, HeadlineIntervals, Lossless, MeasuredResult, Ratio

__all__ = [
    "AUTOREGRESSIVE",
    "COMPRESSION",
    "DRAFT",
    "SELF_DRAFT",
    "CompareResult",
    "Contestant",
    "Quality",
    "TaskAccuracy",
]

#: Kind of plain decoding of the 16-bit network, and the name of its contestant.
AUTOREGRESSIVE = "autoregressive"

#: Kind of the target's compressed copies.
SELF_DRAFT = "self-draft"

#: Kind of all other drafts.
DRAFT = "draft"

#: Kind of networks that are compressed and decoded without a draft.
COMPRESSION = "compression"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskAccuracy(Ends):
    """Greedy answers of the network that is decoded to the problems of a task.

    Attributes:
        accuracy: share of right ones; low, high: ends of its 95 % interval over problems.
        change: what it has above the 16-bit network's, problem by problem.
    """

    accuracy: Quantity[float] = UNKNOWN
    change: Quantity[float] = quantity_field(error="change_standard_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality(Record):
    """What the network that is decoded makes of held-out prompts, and of problems.

    Attributes:
        bits_per_byte: of the prompts' own text.
        agreement: share of places at which its likeliest next token is the 16-bit network's.
        task: of the problems; None without any.
    """

    bits_per_byte: Quantity[float] = quantity_field(error="bits_per_byte_standard_error")
    agreement: Quantity[float] = quantity_field(error="agreement_standard_error")
    task: TaskAccuracy | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contestant(Record):
    """One way to decode.

    Attributes:
        kind: autoregressive, self-draft, draft or compression.
        statement: what is priced, in words.
        activation_bits: of what enters the layers' matrix products of the network that is decoded.
        changes_output: whether the network that is decoded is another than the 16-bit one.
        speedup_vs_bf16_ar: over autoregressive decoding of the 16-bit network, with a 95 % interval over prompts.
        speedup_vs_stored_ar: over that of what is stored.
        vs_best_self_draft: speed over that of the fastest self-draft, on the same prompts; None for that one itself.
        intervals: of its main numbers, with the errors of times; None where nothing is known to err.
        draft_length: fastest on calibration text; draft_length_held_out: fastest on the held-out prompts, looked at afterwards;
            unknown of a draft that depends on earlier cycles.
        bits_per_kv_verify: read by the target per element of its KV cache.
        tokens_per_cycle_calibration: of the same length on calibration text.
        held_bytes: weights and KV of target and draft.
        energy_j_per_token: of all steps; unknown where the device's energy is.
        lossless: speculative against autoregressive greedy output of the same target.
    """

    has_status_table: ClassVar[bool] = True

    kind: str | None = None
    statement: str | None = None
    scheme: str | None = None
    activation_bits: Quantity[float] = UNKNOWN
    changes_output: bool | None = None
    pays: Quantity[bool] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_low: Quantity[float] = UNKNOWN
    speedup_high: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    vs_best_self_draft: Ratio | None = None
    draft_length: Quantity[int] = UNKNOWN
    draft_length_held_out: Quantity[int] = UNKNOWN
    acceptance: AcceptanceRates = dataclasses.field(default_factory=AcceptanceRates)
    tokens_per_cycle_calibration: Quantity[float] = UNKNOWN
    tokens_per_cycle_predicted: Quantity[float] = UNKNOWN
    tokens_per_cycle_counted: Quantity[float] = quantity_field(error="tokens_per_cycle_standard_error")
    tokens_per_cycle_gap_in_standard_errors: Quantity[float] = UNKNOWN
    draft_parameters: Quantity[int] = UNKNOWN
    bits_per_weight: Quantity[float] = UNKNOWN
    bits_per_weight_verify: Quantity[float] = UNKNOWN
    bits_per_kv_verify: Quantity[float] = UNKNOWN
    bits_per_head_weight: Quantity[float] | None = None
    bits_per_head_weight_verify: Quantity[float] | None = None
    draft_step_s: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    intervals: HeadlineIntervals | None = None
    ar_stored_s: Quantity[float] = UNKNOWN
    held_bytes: Quantity[float] = UNKNOWN
    fits: Quantity[bool] = UNKNOWN
    energy_j_per_token: Quantity[float] = UNKNOWN
    quality: Quality = Quality()
    lossless: Lossless = dataclasses.field(default_factory=Lossless)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareResult(MeasuredResult):
    """All contestants on one device, by name.

    Attributes:
        task: whose problems were answered; None: no task's. problems: how many.
        best: the fastest one that leaves the output as it is; "autoregressive" where no draft pays.
        left_out: draft or compression that was not compared -> why.
        lossless: of all drafts together.
    """

    task: str | None = None
    problems: Quantity[int] = UNKNOWN
    best: str | None = None
    contestants: dict[str, Contestant] = dataclasses.field(default_factory=dict)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
