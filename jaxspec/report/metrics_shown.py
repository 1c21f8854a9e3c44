"""Which numbers of a configuration are shown, in the page and in the terminal alike, and under which name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxspec.report.entries import NO_STATUS, number, status
from jaxspec.report.formatting import NOT_KNOWN, fixed, times


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number of a configuration: where it stands, what it is called, how it is written."""

    path: tuple[str, ...]
    title: str
    write: Callable[[float], str]
    meaning: str
    error: str | None = None  # the key of its standard error
    choice: bool = False  # a setting, which is nobody's finding: without a status unless the entry gives one
    optional: bool = False  # not shown where no configuration has it

    def text(self, configuration: Mapping[str, Any]) -> str:
        """The number as a person reads it, with its standard error where it has one."""
        value = number(configuration, *self.path)
        if value is None:
            return NOT_KNOWN
        error = number(configuration, self.error) if self.error else None
        return self.write(value) + ("" if error is None else f" ± {self.write(error)}")

    def status(self, configuration: Mapping[str, Any]) -> str | None:
        """The number's status; None where there is no number to have one."""
        if number(configuration, *self.path) is None:
            return None
        found = status(configuration, *self.path)
        return None if self.choice and found == NO_STATUS else found


def _digits(count: int) -> Callable[[float], str]:
    return lambda value: fixed(value, count)


METRICS = (
    Metric(
        ("speedup_vs_bf16_ar",),
        "speedup vs bf16 AR",
        times,
        "over autoregressive decoding of the uncompressed 16-bit model",
    ),
    Metric(
        ("speedup_vs_stored_ar",),
        "speedup vs stored AR",
        times,
        "over autoregressive decoding of the same stored format",
    ),
    Metric(
        ("acceptance", "alpha_token"),
        "alpha_token",
        _digits(3),
        "probability that one draft token is accepted, given that all before it were",
    ),
    Metric(
        ("acceptance", "alpha_fraction"),
        "alpha_fraction",
        _digits(3),
        "accepted draft tokens over drafted ones",
    ),
    Metric(
        ("kl",),
        "KL to the target",
        _digits(4),
        "nats per token, of the draft's distribution from the target's",
        optional=True,
    ),
    Metric(
        ("bits_per_weight",),
        "bits per weight, draft",
        _digits(2),
        "read per stored weight in one draft step",
    ),
    Metric(
        ("bits_per_weight_verify",),
        "bits per weight, verification",
        _digits(2),
        "read per stored weight in one verification",
    ),
    Metric(("bits_per_kv",), "bits per KV element, draft", _digits(2), "read per cached element in one draft step"),
    Metric(
        ("bits_per_kv_verify",),
        "bits per KV element, verification",
        _digits(2),
        "read per cached element in one verification",
        optional=True,
    ),
    Metric(("draft_length",), "draft length", _digits(0), "tokens drafted per cycle", choice=True),
    Metric(
        ("tokens_per_cycle_predicted",),
        "tokens per cycle, predicted",
        _digits(2),
        "expected from the measured acceptance, the verification's own token included",
    ),
    Metric(
        ("tokens_per_cycle_counted",),
        "tokens per cycle, counted",
        _digits(2),
        "in real decoding of the same prompts, ± one standard error",
        error="tokens_per_cycle_standard_error",
    ),
)
