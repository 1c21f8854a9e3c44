"""How much calibration text promises beyond what held-out prompts keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jaxspec.report.formatting import times
from jaxspec.report.titles import CONFIGURATIONS, in_order
from jaxspec.results import predicted
from jaxspec.studies.tune.result import OnCalibration, TuneResult

__all__ = ["optimism_lines", "promises", "with_calibration"]

#: Configuration that is compared with the others, and the one that it is compared with in the terminal.
_TUNED, _OTHER = "tuned", "grid"


def with_calibration(result: TuneResult, speedups: Mapping[str, float]) -> TuneResult:
    """A result with what its configurations reach on calibration text.

    Args:
        speedups: there, by configuration, over 16-bit autoregressive decoding.
    """
    held_out = {name: result.configurations[name].speedup_vs_bf16_ar.known for name in speedups}
    ratio = {name: speedups[_TUNED] / speedup for name, speedup in speedups.items()}
    found = {
        name: OnCalibration(
            speedup_vs_bf16_ar=predicted(speedup),
            gap=predicted(speedup / held_out[name] - 1.0),
            tuned_vs_this=predicted(ratio[name]),
            optimism=predicted(ratio[name] * held_out[name] / held_out[_TUNED] - 1.0),
        )
        for name, speedup in speedups.items()
    }
    return dataclasses.replace(result, on_calibration=found)


def optimism_in_words(result: TuneResult) -> str:
    """A sentence on the tuned draft and the best grid point; empty where one is not known."""
    tuned, other = (result.on_calibration.get(name, OnCalibration()) for name in (_TUNED, _OTHER))
    promised, optimism, gap = other.tuned_vs_this.number, other.optimism.number, tuned.gap.number
    if promised is None or optimism is None or gap is None:
        return ""
    return (
        f"on the text that it was tuned on, the tuned draft is {times(promised)} as fast as the best grid point, "
        f"{_more(optimism)} than on held-out prompts (its speedup over 16-bit AR there: {_more(gap)})"
    )


def promises(result: TuneResult) -> list[tuple[str, str, str]]:
    """Each other configuration, the tuned one's speed over it on calibration text, and a remark."""
    return [
        (name, times(found.tuned_vs_this.number), f"{_more(found.optimism.number)} than on held-out prompts")
        for name in in_order(result.on_calibration, CONFIGURATIONS)
        if name != _TUNED and (found := result.on_calibration[name]).optimism.number is not None
    ]


def _more(share: float) -> str:
    return f"{abs(100 * share):.1f} % {'more' if share >= 0 else 'less'}"


def optimism_lines(results: Sequence[TuneResult]) -> list[str]:
    """A line for each device, for the terminal."""
    said = {result.device: optimism_in_words(result) for result in results}
    return [f"{device}: {words}" for device, words in said.items() if words]
