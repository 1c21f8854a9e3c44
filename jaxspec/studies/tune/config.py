"""Settings of `jaxspec tune`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Unused
from jaxspec.settings.common import DRAFT_WITHIN_TARGET, CommonConfig, StopwatchSettings
from jaxspec.settings.fields import setting
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.studies.study import Study, run_directory

#: Objectives of tuning.
Objective = Literal["speedup", "kl", "bits_per_byte"]


@dataclasses.dataclass(frozen=True)
class TuneConfig(StopwatchSettings, CommonConfig, stated_beside=__file__):
    """`jaxspec tune`."""

    objective: Objective = setting("speedup")
    max_kl: float | None = setting(None)
    max_bits_per_byte: float | None = setting(None)
    draft_bits: float | None = setting(None)
    steps: int = setting(10)
    uniform_steps: int = setting(3)
    learning_rate: float = setting(1.0)
    windows_per_step: int = setting(24)
    continuation_tokens: int = setting(120)
    surrogate_temperature: float = setting(0.5)

    @property
    def measured_tokens(self) -> int:
        """Tokens of a calibration text, behind its prompt, that drafts are measured on."""
        return max(self.output_tokens, self.continuation_tokens)

    j_grid: bool | None = setting(None)

    unused = (
        *CommonConfig.unused,
        *StopwatchSettings.unused,
        DRAFT_WITHIN_TARGET,
        Unused(
            ("j_grid",),
            lambda config: (
                None
                if SCHEME_FACTS[config.scheme].prunes_and_cuts
                else f"scheme {config.scheme} does not prune and cut weights and KV cache, of which J speaks"
            ),
        ),
        Unused(
            ("surrogate_temperature",),
            lambda config: config.temperature > 0,
            "it smooths greedy decoding, and temperature is above 0",
            refused=False,
        ),
        Unused(("max_kl",), lambda config: config.objective == "kl", "objective kl makes KL as small as it can"),
        Unused(
            ("max_bits_per_byte",),
            lambda config: config.objective == "bits_per_byte",
            "objective bits_per_byte makes them as few as it can",
        ),
    )


#: The study of drafts that are tuned by gradient.
TUNE = Study(
    name="tune",
    config=TuneConfig,
    first=("objective",),
    figures="jaxspec.studies.tune.view:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("tune"),
    meshed=True,
)
