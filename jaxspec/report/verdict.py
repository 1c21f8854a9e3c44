"""The answer in one sentence: what the tuned draft gains, or that no draft pays."""

from __future__ import annotations

import dataclasses

from jaxspec.report.formatting import NOT_KNOWN, times
from jaxspec.report.titles import architecture_title, configurations, device_title
from jaxspec.results.network_results import Configuration, ConfigurationsResult

#: Speedups come from float32; two that differ by less are equal.
_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class SpeedRatio:
    """How much faster one configuration is than another, with its interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the interval, where there is one, leaves out 1."""
        return self.low is None or self.high is None or not self.low <= 1.0 <= self.high

    @property
    def interval(self) -> str:
        """The interval in words; empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} to {self.high:.2f}"

    def __str__(self) -> str:
        return times(self.value) + (f" ({self.interval})" if self.interval else "")


def ratio(result: ConfigurationsResult, other: str) -> SpeedRatio | None:
    """Predicted speed of the tuned configuration over another's; from the speedups where the entry holds no ratio."""
    given = result.ratios.get(f"tuned_vs_{other}")
    if given is not None and given.ratio.number is not None:
        return SpeedRatio(given.ratio.number, given.low.number, given.high.number)
    tuned, others = (
        result.configurations.get(name, Configuration()).speedup_vs_bf16_ar.number for name in ("tuned", other)
    )
    return SpeedRatio(tuned / others) if tuned is not None and others else None


@dataclasses.dataclass(frozen=True)
class Answer:
    """Whether to speculate at all.

    Attributes:
        best: the fastest configuration; None where no speedup is known.
        speedup: its speedup over 16-bit autoregressive decoding.
        stored_speedup: the same of autoregressive decoding, in the fastest of the configurations' stored formats.
        pays: whether the fastest configuration beats that, and 16-bit decoding.
    """

    best: str | None
    speedup: float | None
    stored_speedup: float | None
    pays: bool

    @property
    def choice(self) -> str:
        """The draft that pays, in a word."""
        if self.best is None:
            return NOT_KNOWN
        return self.best if self.pays else "none"


def verdict(result: ConfigurationsResult) -> Answer:
    """Compare the fastest draft with plain decoding of what is stored."""
    speedups, stored = {}, []
    for name, configuration in configurations(result).items():
        speedup = configuration.speedup_vs_bf16_ar.number
        if speedup is None:
            continue
        speedups[name] = speedup
        relative = configuration.speedup_vs_stored_ar.number
        bf16_s, stored_s = configuration.cycle.ar_bf16_s.number, configuration.cycle.ar_stored_s.number
        if bf16_s and stored_s:
            stored.append(bf16_s / stored_s)
        elif relative:
            stored.append(speedup / relative)
    if not speedups:
        return Answer(best=None, speedup=None, stored_speedup=None, pays=False)
    best = max(speedups, key=lambda name: (speedups[name], name == "tuned"))
    bar = max([1.0, *stored]) * (1.0 + _TOLERANCE)
    return Answer(best, speedups[best], max(stored, default=None), pays=speedups[best] > bar)


def headline(result: ConfigurationsResult) -> str:
    """The device's answer in one or two plain sentences."""
    where, answer = f"{architecture_title(result)} on {device_title(result)}", verdict(result)
    if answer.speedup is None:
        return f"{where}: no speedup is known."
    if not answer.pays:
        sentence = (
            f"{where}: no draft pays here. The best one ({answer.best}) is predicted to decode "
            f"{times(answer.speedup)} as fast as 16-bit autoregressive decoding"
        )
        if answer.stored_speedup is None:
            return sentence + "."
        return f"{sentence}; plain decoding of a stored format reaches {times(answer.stored_speedup)}."
    tuned = result.configurations.get("tuned", Configuration())
    told = "tuned" if tuned.speedup_vs_bf16_ar.number is not None else str(answer.best)
    speedup = result.configurations[told].speedup_vs_bf16_ar.number
    stored = result.configurations[told].speedup_vs_stored_ar.number
    sentence = (
        f"{where}: the {told} draft is predicted to decode {times(speedup)} as fast as 16-bit autoregressive decoding"
    )
    if stored is not None:
        sentence += f" and {times(stored)} as fast as decoding of its own stored format"
    if told != "tuned":
        return sentence + "."
    named = {"grid": "the best grid point", "default": "the default"}
    compared = {name: found for name in named if (found := ratio(result, name)) is not None}
    parts = [
        f"{found} the speed of {named[name]}{'' if found.clear else ' (no clear difference)'}"
        for name, found in compared.items()
    ]
    return f"{sentence}; that is {' and '.join(parts)}." if parts else f"{sentence}."
