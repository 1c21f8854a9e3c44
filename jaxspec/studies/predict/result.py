"""Result of `jaxspec predict` for one device."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.results import UNKNOWN, Quantity, Record
from jaxspec.results.network_results import CycleEnds, EngineUsed, HeadlineIntervals, PricedResult
from jaxspec.results.records import rest_table

__all__ = [
    "BatchRow",
    "DecoderNeeds",
    "ExpertUse",
    "GivenAcceptance",
    "LengthRow",
    "PredictResult",
    "PredictedWorkload",
    "ReadWidths",
    "StepTotals",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedWorkload(Record):
    """Workload that is priced."""

    batch: Quantity[int] = UNKNOWN
    context_tokens: Quantity[int] = UNKNOWN
    prompt_tokens: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadWidths(Record):
    """Bits read per weight of the layers' matrices, per KV element and per weight of the LM head (None: 16, the scheme leaves
    it), by draft and verification."""

    one_status: ClassVar[bool] = False

    draft_bits: Quantity[float] = UNKNOWN
    verify_bits: Quantity[float] = UNKNOWN
    draft_kv_bits: Quantity[float] = UNKNOWN
    verify_kv_bits: Quantity[float] = UNKNOWN
    draft_head_bits: Quantity[float] | None = None
    verify_head_bits: Quantity[float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class GivenAcceptance(Record):
    """Conditional acceptance by position, and what it was made of, in words.

    Attributes:
        by_dataset: of a trace, tokens per cycle of each data set by draft length from 1 on.
    """

    conditional: Quantity[list] = UNKNOWN
    source: str = "as given"
    by_dataset: dict[str, list[float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthRow(Record):
    """One draft length; 0 is autoregressive decoding of the stored format. `intervals`: None where nothing is known to err."""

    draft_length: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    intervals: CycleEnds | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchRow(Record):
    """One batch, with its best draft length. `intervals`: None where nothing is known to err."""

    batch: Quantity[int] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    fits: Quantity[bool] = UNKNOWN
    intervals: CycleEnds | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTotals(Record):
    """Totals of one step; `energy_j` by component, None where the device's energies are not known.

    `on_chip_s`: if only traffic between memories and compute unit took time; None where the device's file has no rate of it.
    `encoding_s`: if only encoding new keys and values took time; None without encoders, 0 where the cache has 16 bits.
    """

    total_s: Quantity[float] = UNKNOWN
    compute_s: Quantity[float] = UNKNOWN
    memory_s: Quantity[float] = UNKNOWN
    on_chip_s: Quantity[float | None] = UNKNOWN
    decoding_s: Quantity[float] = UNKNOWN
    encoding_s: Quantity[float | None] = UNKNOWN
    flops: Quantity[float] = UNKNOWN
    weight_bytes: Quantity[float] = UNKNOWN
    kv_bytes: Quantity[float] = UNKNOWN
    activation_bytes: Quantity[float] = UNKNOWN
    launches: Quantity[float] = UNKNOWN
    memory_energy_j: Quantity[list] = UNKNOWN
    energy_j: Quantity[dict] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderNeeds(Record):
    """Decoders of the device, and how many no operator of a step would wait for."""

    count: Quantity[float] = UNKNOWN
    needed_by_draft: Quantity[int] = UNKNOWN
    needed_by_verify: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpertUse(Record):
    """Routed experts of a layer that steps read, by step: ar_stored, draft, verify.

    Attributes:
        draft_pool: experts among which a draft step chooses.
        touched: different experts that a step reads, expected.
        read_from_first_memory: share of the experts' bytes that a step reads there.
    """

    draft_pool: Quantity[float] = UNKNOWN
    touched: Quantity[dict] = UNKNOWN
    read_from_first_memory: Quantity[dict] = UNKNOWN


def _statuses(table: dict[str, Any]) -> dict[str, Any]:
    """Widths by name; of the rest only what is not predicted."""
    widths = {name: part for name, part in table.items() if name == "footprint"}
    return rest_table({name: part for name, part in table.items() if name not in widths}) | widths


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictResult(PricedResult):
    """What is predicted for one device, at the best draft length unless a row says otherwise.

    Attributes:
        release: the release's own form, and whether it is priced; None: 16 bits, or nothing is known of it.
        lossless: whether the target's outputs are unchanged; None where the user's own widths leave it open.
        draft: what a draft step runs, in words.
        engine: whose terms are in the times; None: kernels alone.
        intervals: of the main numbers; None where nothing is known to err.
        operators: step -> operator -> seconds.
        steps: by name: prefill, ar_bf16, ar_stored, draft, verify.
        sensitivity: result -> number of the device -> percent per percent.
    """

    arrange_statuses = staticmethod(_statuses)

    draft: str | None = None
    engine: EngineUsed | None = None
    scheme: Quantity[str] = UNKNOWN
    release: str | None = None
    lossless: bool | None = None
    workload: PredictedWorkload = PredictedWorkload()
    footprint: ReadWidths = ReadWidths()
    acceptance: GivenAcceptance = GivenAcceptance()
    pays: Quantity[bool] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    request_s: Quantity[float] = UNKNOWN
    output_s: Quantity[float] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    intervals: HeadlineIntervals | None = None
    ar_bf16_s: Quantity[float] = UNKNOWN
    ar_stored_s: Quantity[float] = UNKNOWN
    held_bytes: Quantity[float] = UNKNOWN
    capacity_bytes: Quantity[float] = UNKNOWN
    longest_context_tokens: Quantity[float] = UNKNOWN
    energy_per_token_j: Quantity[float] = UNKNOWN
    energy_per_token_ar_bf16_j: Quantity[float] = UNKNOWN
    area_m2: Quantity[float] = UNKNOWN
    power_w: Quantity[float] | None = None  # with everything busy, of a device with a [technology]
    price_usd: Quantity[float] | None = None  # of its die and memories
    by_draft_length: list[LengthRow] = dataclasses.field(default_factory=list)
    by_batch: list[BatchRow] = dataclasses.field(default_factory=list)
    fits: Quantity[bool] = UNKNOWN
    ar_bf16_held_bytes: Quantity[float] = UNKNOWN
    ar_bf16_fits: Quantity[bool] = UNKNOWN
    operators: Quantity[dict] = UNKNOWN
    step_intervals: Quantity[dict] | None = None  # of a calibrated device
    steps: dict[str, StepTotals] = dataclasses.field(default_factory=dict)
    decoders: DecoderNeeds | None = None
    placement: Quantity[str] = UNKNOWN
    experts: ExpertUse | None = None
    sensitivity: Quantity[dict] = UNKNOWN
    kernel_widths: dict[str, Any] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
