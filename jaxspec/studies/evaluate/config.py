"""Settings of `jaxspec evaluate`."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Unused
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.draft import NetworkKnobSettings, knobs_of_other_schemes
from jaxspec.settings.fields import setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.parallel import DRAFT_WITHIN_TARGET
from jaxspec.settings.schemes import KNOBS
from jaxspec.settings.stopwatch import StopwatchSettings

__all__ = ["EvaluateConfig"]


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(NetworkKnobSettings, StopwatchSettings, CommonConfig):
    """`jaxspec evaluate`."""

    draft_length: int = setting(5, "Tokens drafted per cycle.", low=1, high=MAX_DRAFT_LENGTH)
    knobs: str | None = setting(
        None,
        "result.json of `jaxspec tune` or `jaxspec evaluate`: take the knobs of its first device instead.",
        unset="none",
    )

    unused = (
        *CommonConfig.unused,
        *StopwatchSettings.unused,
        DRAFT_WITHIN_TARGET,
        *knobs_of_other_schemes(),
        Unused(
            (*KNOBS, "draft_length"),
            lambda config: "knobs takes all of them from a result.json" if config.knobs is not None else None,
        ),
    )
