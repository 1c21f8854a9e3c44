"""Settings of a stopwatch beside a prediction: whether decoding is timed on this machine, and how often."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.errors import InputError
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting

__all__ = ["REPEATS", "StopwatchSettings", "check_stopwatch"]

#: Rounds unless another number is given.
REPEATS = 7


@dataclasses.dataclass(frozen=True)
class StopwatchSettings(Settings):
    """Whether held-out prompts are decoded against the clock, with speculation and without."""

    heading: ClassVar[str] = "Measured times"

    stopwatch: bool | None = setting(
        None,
        "Also time decoding on this machine, with and without speculation: the first prompts in batches of --batch.",
        unset="no",
    )
    repeats: int | None = setting(None, "Rounds of the stopwatch.", low=3, high=1000, unset=str(REPEATS))

    unused = (
        Unused(("repeats",), lambda config: None if config.stopwatch else "without stopwatch, nothing is timed"),
        Unused(
            ("stream",),
            lambda config: "the stopwatch times networks in the device's memory" if _streamed(config) else None,
        ),
    )

    @property
    def rounds(self) -> int:
        """Of the stopwatch."""
        return REPEATS if self.repeats is None else self.repeats


def _streamed(config: Any) -> bool:
    return bool(config.stopwatch and config.stream)


def check_stopwatch(config: Any, prompts: int) -> None:
    """Raise InputError where a run that is timed has fewer held-out prompts than a batch.

    Args:
        config: a `StopwatchSettings` with a batch.
        prompts: how many there are.
    """
    if config.stopwatch and prompts < config.batch:
        raise InputError(
            f"stopwatch decodes {config.batch} prompts together (batch), and there {'is' if prompts == 1 else 'are'} "
            f"{prompts}; give more prompts or a smaller batch"
        )
