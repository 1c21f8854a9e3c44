"""Records that results of several commands share: what was priced and ran, intervals, drafts, decoding against the clock."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.results.records import UNKNOWN, Quantity, Record, Result, quantity_field

__all__ = [
    "LOST_IN_NOISE",
    "NO_ENDS",
    "AcceptanceRates",
    "ClockIntervals",
    "ClockedWay",
    "Configuration",
    "ConfigurationsResult",
    "CycleEnds",
    "CycleTimes",
    "DecodingSettings",
    "Ends",
    "EngineUsed",
    "HeadlineIntervals",
    "Lossless",
    "MeasuredResult",
    "MeasuredRouting",
    "PredictedClock",
    "PricedNumber",
    "PricedResult",
    "Ratio",
    "Repeated",
    "RunningModel",
    "Stopwatch",
    "WorkloadSettings",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ends(Record):
    """Ends of an interval."""

    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN


#: Of a number that nothing is known to err in.
NO_ENDS = Ends()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleEnds(Record):
    """Intervals of the main numbers of a cycle and of the autoregressive steps that it is compared with."""

    speedup_vs_bf16_ar: Ends = NO_ENDS
    speedup_vs_stored_ar: Ends = NO_ENDS
    tokens_per_s: Ends = NO_ENDS
    cycle_s: Ends = NO_ENDS
    ar_bf16_s: Ends = NO_ENDS
    ar_stored_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadlineIntervals(CycleEnds):
    """Intervals of a draft's main numbers.

    Attributes:
        coverage: probability that each is to cover the true number with.
        covers: errors that they hold: "calibration" of the device's kernels, sampling of "acceptance", "engine".
        statement: the same in a sentence.
    """

    coverage: float | None = None
    covers: list[str] = dataclasses.field(default_factory=list)
    statement: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineUsed(Record):
    """Serving engine of the predicted times.

    Attributes:
        terms: seconds that it adds, by name; none where they are not known.
        sources: where each comes from.
    """

    name: str | None = None
    terms: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)


#: Why a number of a way is not known.
LOST_IN_NOISE = "times that are lost in their noise, ratios over such times, or times of a single cycle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeated(Record):
    """Median of a number over repeats, and the interval in which 90 % of them lie."""

    median: Quantity[float] = UNKNOWN
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockIntervals(Record):
    """Intervals of predicted times and speeds.

    Attributes:
        coverage: probability that each is to cover the measured number with.
        statement: which errors they hold, and which they leave out.
    """

    coverage: float | None = None
    statement: str | None = None
    tokens_per_s: Ends = NO_ENDS
    speedup: Ends = NO_ENDS
    cycle_s: Ends = NO_ENDS
    draft_step_s: Ends = NO_ENDS
    verify_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedClock(Record):
    """Times and speeds of one way to decode by the model of this machine, with the tokens that were counted.

    Attributes:
        intervals: None where nobody measured how far the device's times lie off.
    """

    tokens_per_s: Quantity[float] = UNKNOWN
    speedup: Quantity[float] = UNKNOWN
    cycle_s: Quantity[float] = UNKNOWN
    draft_step_s: Quantity[float] = UNKNOWN
    verify_s: Quantity[float] = UNKNOWN
    intervals: ClockIntervals | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClockedWay(Record):
    """One way to decode.

    Attributes:
        drafted_tokens: verified beside the root in each cycle; 0: no speculation.
        tokens_per_cycle: of each sequence.
        tokens_per_turn: of a batch, in each turn of the loop, which waits for its slowest sequence.
        tokens_per_s: of a batch.
        speedup: over decoding without speculation, at width 1.
        cycle_s, draft_step_s, verify_s: of a batch; without speculation, a cycle is a step.
        compile_s: not part of any of them.
        equal_tokens: share that equals decoding without speculation.
        predicted: None where the priced device is not this machine.
    """

    one_status: ClassVar[bool] = False

    drafted_tokens: Quantity[int] = UNKNOWN
    tokens_per_cycle: Quantity[float] = UNKNOWN
    tokens_per_turn: Quantity[float] = UNKNOWN
    tokens_per_s: Repeated = Repeated()
    speedup: Repeated = Repeated()
    cycle_s: Repeated = Repeated()
    draft_step_s: Repeated = Repeated()
    verify_s: Repeated = Repeated()
    compile_s: Quantity[float] = UNKNOWN
    equal_tokens: Quantity[float] = UNKNOWN
    predicted: PredictedClock | None = None

    @property
    def lost(self) -> bool:
        """Whether one of its times or rates was timed and is not known."""
        timed = (self.tokens_per_s, self.speedup, self.cycle_s, self.draft_step_s, self.verify_s)
        return any(each.median.status and each.median.number is None for each in timed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stopwatch(Record):
    """Ways to decode the same prompts, timed in turns on the machine that ran.

    Attributes:
        machine: that ran.
        statement: what the times may be compared with.
        unknown: why medians are not known; None where all are.
        noise: largest relative error of a median speedup; believable: whether it is small enough.
        load: tasks that wanted to run in the last minute of timing, over the cores; unknown where the system does not say.
        autoregressive: without speculation, one token per step at width 1.
    """

    has_status_table: ClassVar[bool] = True

    machine: str | None = None
    statement: str | None = None
    unknown: str | None = None
    repeats: Quantity[int] = UNKNOWN
    prompts: Quantity[int] = UNKNOWN
    batch: Quantity[int] = UNKNOWN
    output_tokens: Quantity[int] = UNKNOWN
    noise: Quantity[float] = UNKNOWN
    believable: Quantity[bool] = UNKNOWN
    load: Quantity[float] = UNKNOWN
    autoregressive: ClockedWay = ClockedWay()
    ways: dict[str, ClockedWay] = dataclasses.field(default_factory=dict)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedResult(Result):
    """A result for one device and one architecture, which measures no network.

    Attributes:
        architecture_data, device_data: numbers that were priced with, by field.
        assumptions: in sentences.
        inputs: SHA-256 of every file that the configuration names.
    """

    schema_version: int = 1
    architecture: str | None = None
    architecture_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    device: str | None = None
    device_title: str | None = None
    device_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    assumptions: list[str] = dataclasses.field(default_factory=list)
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
