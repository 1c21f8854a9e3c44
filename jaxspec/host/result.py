"""Result of `jaxspec calibrate`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import UNKNOWN, Quantity, Record
from jaxspec.results.network_results import MeasuredResult

__all__ = ["CalibrateResult", "FittedPart", "MeasuredTime", "RowStep", "SeenNoise"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredTime(Record):
    """One measured time, with what was measured and what the fit says.

    Attributes:
        part: see the columns of `jaxspec calibrate --example`.
        what: its shape in words.
        spread: between the quartiles of its repeats, over their median.
        predicted_s: by the device file; None of parts that are no kernel.
        held_out_s: by a fit that did not see its group.
    """

    part: str | None = None
    what: str | None = None
    weight_bits: float | None = None
    rows: float | None = None
    inner: float | None = None
    outer: float | None = None
    seconds: Quantity[float] = UNKNOWN
    spread: Quantity[float] = UNKNOWN
    predicted_s: Quantity[float] = UNKNOWN
    held_out_s: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedPart(Record):
    """One fit.

    Attributes:
        numbers, standard_errors: by name, in SI.
        at_bound: numbers on a bound of the fit.
        held_out_mean, held_out_median, held_out_largest: relative errors on groups that the fit did not see.
        low, high: ends of the 90 % interval as factors of a predicted time.
        covered: share of the rows of other groups within the interval of each half.
        smooth_mean: of products, mean error of the form without row costs on the same rows.
    """

    part: str | None = None
    weight_bits: float | None = None
    times: Quantity[int] = UNKNOWN
    numbers: Quantity[dict] = UNKNOWN
    standard_errors: Quantity[dict] = UNKNOWN
    at_bound: list[str] = dataclasses.field(default_factory=list)
    held_out_mean: Quantity[float] = UNKNOWN
    held_out_median: Quantity[float] = UNKNOWN
    held_out_largest: Quantity[float] = UNKNOWN
    low: Quantity[float] = UNKNOWN
    high: Quantity[float] = UNKNOWN
    covered: Quantity[list] = UNKNOWN
    smooth_mean: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowStep(Record):
    """Measured steps of rows in one format: by size of the matrix, by rows, over the form's time."""

    weight_bits: float | None = None
    weights: Quantity[list] = UNKNOWN
    rows: Quantity[list] = UNKNOWN
    factors: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeenNoise(Record):
    """How quiet the machine was; see `jaxspec.host.measuring`."""

    spread: Quantity[float] = UNKNOWN
    large_share: Quantity[float] = UNKNOWN
    drift: Quantity[float] = UNKNOWN
    load: Quantity[float] = UNKNOWN
    believed: Quantity[bool] = UNKNOWN
    words: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateResult(MeasuredResult):
    """A machine that was measured, or times that a user brought.

    Attributes:
        origin: where the times come from.
        device_file: content of the device file.
        noise: None for times of a file.
        step_error: mean error of whole steps by the device, where they were measured.
        engine_terms: name -> seconds that the loop spends beside its networks' steps; None where no cycles were measured.
        doubts: where the form does not fit.
    """

    origin: str | None = None
    device_file: str | None = None
    noise: SeenNoise | None = None
    parts: list[FittedPart] = dataclasses.field(default_factory=list)
    row_steps: list[RowStep] = dataclasses.field(default_factory=list)
    measurements: list[MeasuredTime] = dataclasses.field(default_factory=list)
    step_error: Quantity[float] = UNKNOWN
    launch_s: Quantity[float] = UNKNOWN
    turn_s: Quantity[float] = UNKNOWN
    engine_terms: Quantity[dict] = UNKNOWN
    doubts: list[str] = dataclasses.field(default_factory=list)
    compile_s: Quantity[float] = UNKNOWN
    measured_with: dict[str, Any] = dataclasses.field(default_factory=dict)
