"""Settings of `jaxspec tune`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Unused
from jaxspec.settings.common import DRAFT_WITHIN_TARGET, CommonConfig, StopwatchSettings
from jaxspec.settings.fields import setting
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.studies.study import Study, help_beside, run_directory

#: Objectives of tuning.
Objective = Literal["speedup", "kl", "bits_per_byte"]


@dataclasses.dataclass(frozen=True)
class TuneConfig(StopwatchSettings, CommonConfig):
    """`jaxspec tune`."""

    objective: Objective = setting(
        "speedup", "Objective of tuning; kl and bits_per_byte are minimized within --draft-bits."
    )
    max_kl: float | None = setting(
        None, "Constraint: KL to the target, nats per token.", low=1e-6, high=100, unset="none"
    )
    max_bits_per_byte: float | None = setting(
        None, "Constraint: bits per byte of the draft on calibration text.", low=1e-6, high=100, unset="none"
    )
    draft_bits: float | None = setting(
        None,
        "Constraint: mean bits per weight that a draft step reads, and bits per weight of a head that is compressed.",
        low=0.5,
        high=16,
        unset="none, for kl and bits_per_byte the bits of Cassandra's 40 %/4 bits",
    )
    steps: int = setting(
        10,
        "Passes over calibration text that move all knobs, each to where gain and loss balance.",
        low=1,
        high=100_000,
        quick=6,
    )
    uniform_steps: int = setting(
        3, "Passes that move one pair of knobs for all matrices.", low=1, high=100_000, quick=2
    )
    learning_rate: float = setting(
        1.0,
        "First move, as a share of the one that would balance each knob; the t-th takes a t-th of it.",
        low=1e-6,
        high=1,
    )
    windows_per_step: int = setting(24, "Windows of calibration text per pass.", low=1, high=100_000, quick=16)
    continuation_tokens: int = setting(
        120,
        "Tokens that the network writes after each calibration prompt, at least; drafts are tuned on them.",
        low=1,
        high=1_000_000,
    )
    surrogate_temperature: float = setting(
        0.5, "Temperature of the smooth acceptance, under greedy decoding.", low=0.05, high=10
    )

    @property
    def measured_tokens(self) -> int:
        """Tokens of a calibration text, behind its prompt, that drafts are measured on."""
        return max(self.output_tokens, self.continuation_tokens)

    j_grid: bool | None = setting(
        None,
        "Also search as Cassandra does: a grid in two stages, by its objective J (Eq. 2), on 8 windows of calibration text.",
        unset="no",
    )

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
    help=help_beside(__file__),
    run="jaxspec.studies.tune.run:tune",
    present="jaxspec.studies.tune.view:shown",
    figures="jaxspec.studies.tune.view:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("tune"),
    meshed=True,
)
