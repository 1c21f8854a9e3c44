"""Results of commands that run a network: what ran, what was priced, and what each configuration of its draft reached."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.results.intervals import EngineUsed, HeadlineIntervals
from jaxspec.results.quantity import UNKNOWN, Quantity
from jaxspec.results.records import Record, Result, quantity_field
from jaxspec.results.stopwatch_results import Stopwatch

__all__ = [
    "AcceptanceRates",
    "Configuration",
    "ConfigurationsResult",
    "CycleTimes",
    "DecodingSettings",
    "Lossless",
    "MeasuredResult",
    "MeasuredRouting",
    "PricedNumber",
    "Ratio",
    "RunningModel",
    "WorkloadSettings",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningModel(Record):
    """Network that ran."""

    name: str | None = None
    parameters: Quantity[int] = UNKNOWN
    vocabulary: Quantity[int] = UNKNOWN
    layers: Quantity[int] = UNKNOWN
    note: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedNumber(Record):
    """One number of a device or an architecture, with its source and status."""

    value: float | None = None
    source: str | None = None
    status: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkloadSettings(Record):
    """Workload that is priced."""

    batch: Quantity[int] = UNKNOWN
    context_tokens: Quantity[float] = UNKNOWN
    prompt_tokens: Quantity[int] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingSettings(Record):
    """How prompts were decoded.

    Attributes:
        prompt_tokens: of each prompt; their mean where they differ.
        stop_tokens: ids after which a prompt's decoding ends; unknown where there are none.
    """

    temperature: Quantity[float] = UNKNOWN
    top_k: Quantity[int] = UNKNOWN
    top_p: Quantity[float] = UNKNOWN
    prompts: Quantity[int] = UNKNOWN
    prompt_tokens: Quantity[float] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN
    stop_tokens: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredRouting(Record):
    """Choices of the running network's routers that the priced network was given.

    Attributes:
        popularity: share of all choices by rank of the expert, the mean over layers; quantiles where the priced network has
            another number of experts.
        correlation: of neighbouring tokens.
    """

    popularity: Quantity[list] = UNKNOWN
    correlation: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lossless(Record):
    """Comparison of speculative and autoregressive greedy output, token by token."""

    prompts: Quantity[int] = UNKNOWN
    tokens: Quantity[int] = UNKNOWN
    mismatches: Quantity[int] = UNKNOWN
    ties: Quantity[int] = UNKNOWN
    smallest_margin: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredResult(Result):
    """What every result of a network that ran says, for one device.

    Attributes:
        architecture_data, device_data: numbers that were priced with, by field.
        assumptions: behind the device's times, in sentences.
        placement: where things lie in a device with several memories; unknown on others.
        engine: whose terms are in the predicted times; None: kernels alone.
        routing: choices of experts that were priced with; None: even and independent ones.
        prompts: name of the file that the held-out prompts come from; None: they are cut from the text.
        inputs: SHA-256 of every file that the configuration names.
        timing_s: seconds by stage.
        kernel_widths, notes: see `jaxspec.studies.feasibility`.
        stopwatch: decoding against the clock of the machine that ran; None: it was not asked for.
    """

    schema_version: int = 1
    model: RunningModel = RunningModel()
    architecture: str | None = None
    architecture_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    device: str | None = None
    device_title: str | None = None
    device_data: dict[str, PricedNumber] | None = None
    assumptions: list[str] | None = None
    placement: Quantity[str] = UNKNOWN
    routing: MeasuredRouting | None = None
    engine: EngineUsed | None = None
    workload: WorkloadSettings = WorkloadSettings()
    decoding: DecodingSettings = DecodingSettings()
    scheme: str | None = None
    text: str | None = None
    prompts: str | None = None
    seed: int | None = None
    statement: str | None = None
    pays: Quantity[bool] = UNKNOWN
    lossless: Lossless = Lossless()
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    timing_s: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    kernel_widths: dict[str, Any] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    stopwatch: Stopwatch | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AcceptanceRates(Record):
    """Acceptance of a draft chain; `conditional` by position."""

    alpha_token: Quantity[float] = UNKNOWN
    alpha_fraction: Quantity[float] = UNKNOWN
    conditional: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleTimes(Record):
    """Seconds of a cycle, of its parts (the engine's is 0 where no terms are known), and of one step of each baseline."""

    draft_step_s: Quantity[float] = UNKNOWN
    verify_s: Quantity[float] = UNKNOWN
    total_s: Quantity[float] = UNKNOWN
    engine_s: Quantity[float] = UNKNOWN
    ar_bf16_s: Quantity[float] = UNKNOWN
    ar_stored_s: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class CategoryCycles(Record):
    """What one draft does on the held-out prompts of one category."""

    prompts: Quantity[int] = UNKNOWN
    alpha_token: Quantity[float] = UNKNOWN
    tokens_per_cycle_predicted: Quantity[float] = UNKNOWN
    tokens_per_cycle_counted: Quantity[float] = quantity_field(error="tokens_per_cycle_standard_error")
    tokens_per_cycle_gap_in_standard_errors: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration(Record):
    """One hard draft: counted, predicted, priced.

    Attributes:
        by_category: of the held-out prompts, where their file names categories.
        operators: step -> operator -> seconds.
        roofline: step -> FLOP per byte and FLOP/s.
        bits_per_head_weight, bits_per_head_weight_verify: None where the scheme leaves the LM head at 16 bits.
        intervals: of its main numbers; None where nothing is known to err.
    """

    has_status_table: ClassVar[bool] = True

    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    acceptance: AcceptanceRates = AcceptanceRates()
    bits_per_weight: Quantity[float] = UNKNOWN
    bits_per_weight_verify: Quantity[float] = UNKNOWN
    bits_per_kv: Quantity[float] = UNKNOWN
    bits_per_kv_verify: Quantity[float] = UNKNOWN
    bits_per_head_weight: Quantity[float] | None = None
    bits_per_head_weight_verify: Quantity[float] | None = None
    kl: Quantity[float] = UNKNOWN
    draft_length: Quantity[int] = UNKNOWN
    draft_length_predicted_best: Quantity[int] = UNKNOWN
    tokens_per_cycle_predicted: Quantity[float] = UNKNOWN
    tokens_per_cycle_counted: Quantity[float] = quantity_field(error="tokens_per_cycle_standard_error")
    tokens_per_cycle_gap_in_standard_errors: Quantity[float] = UNKNOWN
    knobs: Quantity[dict] = UNKNOWN
    cycle: CycleTimes = CycleTimes()
    operators: Quantity[dict] = UNKNOWN
    roofline: Quantity[dict] = UNKNOWN
    intervals: HeadlineIntervals | None = None
    by_category: dict[str, CategoryCycles] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio(Record):
    """Speed of one draft over another's, with a 95 % interval over prompts."""

    ratio: Quantity[float] = UNKNOWN
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigurationsResult(MeasuredResult):
    """Configurations of a draft on one device, compared.

    Attributes:
        ratios: "tuned_vs_grid" and so on.
    """

    configurations: dict[str, Configuration] = dataclasses.field(default_factory=dict)
    ratios: dict[str, Ratio] = dataclasses.field(default_factory=dict)
