"""Settings of `jaxspec evaluate`."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Unused
from jaxspec.settings.common import DRAFT_WITHIN_TARGET, CommonConfig, StopwatchSettings
from jaxspec.settings.draft_kinds import NetworkKnobSettings, knobs_of_other_schemes
from jaxspec.settings.fields import setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import all_knobs
from jaxspec.studies.study import Study, run_directory


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(NetworkKnobSettings, StopwatchSettings, CommonConfig, stated_beside=__file__):
    """`jaxspec evaluate`."""

    draft_length: int = setting(5, low=1, high=MAX_DRAFT_LENGTH)
    knobs: str | None = setting(None)

    unused = (
        *CommonConfig.unused,
        *StopwatchSettings.unused,
        DRAFT_WITHIN_TARGET,
        knobs_of_other_schemes,
        lambda: (
            Unused(
                (*all_knobs(), "draft_length"),
                lambda config: config.knobs is not None,
                "knobs takes all of them from a result.json",
            ),
        ),
    )


#: The study of one given draft.
EVALUATE = Study(
    name="evaluate",
    config=EvaluateConfig,
    first=("knobs", "weight_prune", "weight_cut_bits"),
    present="jaxspec.studies.evaluate.run:shown",
    figures="jaxspec.studies.evaluate.run:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("evaluate"),
    meshed=True,
)
