"""Settings of `jaxspec advise`."""

from __future__ import annotations

import dataclasses

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import ACCEPTANCE_UNUSED, PRINTED, AcceptanceSettings
from jaxspec.settings.base import Unused
from jaxspec.settings.catalog_names import catalog_architectures
from jaxspec.settings.common import CommonConfig, ExpertSettings, ParallelSettings
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import PricedScheme
from jaxspec.studies.config_files import NETWORK
from jaxspec.studies.predict.config import BLOCK, HEADS, LOOKUP, NamedDraft, PredictConfig
from jaxspec.studies.study import Study, run_directory

#: Ranks behind the first one.
_MOST_BRANCHES = 15


def _few_branches(numbers: tuple[float, ...]) -> None:
    if len(numbers) > _MOST_BRANCHES or sum(numbers) > 1.0:
        raise InputError(
            f"branch_acceptance is {','.join(f'{number:g}' for number in numbers)}; give up to {_MOST_BRANCHES} chances that "
            "sum to at most 1"
        )


def _given(config: AdviseConfig) -> str | None:
    return "a finished run says what was accepted" if config.run is not None else None


@dataclasses.dataclass(frozen=True)
class AdviseConfig(NamedDraft, ParallelSettings, AcceptanceSettings, stated_beside=__file__):
    """`jaxspec advise`.

    Raises:
        InputError: a value out of its range; settings that do not fit together.
    """

    architecture: str = same_as(CommonConfig, "architecture")
    device: tuple[str, ...] = same_as(CommonConfig, "device")
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    batch: tuple[int, ...] = same_as(PredictConfig, "batch", default=(1, 2, 4, 8, 16, 32, 64, 128))
    context: tuple[int, ...] = same_as(PredictConfig, "context")
    prompt_tokens: int = setting(0)
    output_tokens: int = setting(256)
    scheme: PricedScheme = setting(None, objects="scheme")
    expert_bits: float | None = same_as(ExpertSettings, "expert_bits")
    draft: str = setting(
        "eagle3",
        names=lambda: (LOOKUP, *HEADS, BLOCK, SELF, *catalog_architectures()),
        objects="architecture",
    )
    draft_bits: float | None = setting(None)
    acceptance: tuple[float, ...] | None = same_as(AcceptanceSettings, "acceptance")
    acceptance_cycles: int | None = same_as(PredictConfig, "acceptance_cycles")
    branch_acceptance: tuple[float, ...] | None = setting(None, check=_few_branches)
    tree_nodes: int = setting(24)
    run: str | None = setting(None)
    max_draft_length: int = same_as(PredictConfig, "max_draft_length")
    target_weights: str | None = setting(None)
    draft_weights: str | None = setting(None)

    unused = (
        Unused(("acceptance", "acceptance_cycles", "max_draft_length", *PRINTED), _given),
        *ACCEPTANCE_UNUSED,
        Unused(("output_tokens",), lambda config: not config.prompt_tokens, "no prompts are processed during decoding"),
        Unused(("tree_nodes",), lambda config: config.branch_acceptance is None, "trees need branch_acceptance"),
        Unused(("branch_acceptance",), lambda config: config.draft == LOOKUP, "a lookup proposes no second token"),
        Unused(("acceptance_cycles",), lambda config: config.acceptance_form is None, "no acceptance was given"),
        Unused(
            ("draft_bits", "draft_weights", "draft_tensor_parallel"),
            lambda config: config.draft == LOOKUP,
            "a lookup has no weights",
        ),
        Unused(("draft_weights",), lambda config: config.draft == "mtp", "the head is the target's own"),
        Unused(
            ("draft_weights", "draft_tensor_parallel"),
            lambda config: config.draft == SELF,
            "a compressed copy lies within the target",
        ),
    )

    @property
    def prices_own_network(self) -> bool:
        """Whether the draft is a network by name."""
        return self.kind == NETWORK


#: The study that advises engines.
ADVISE = Study(
    name="advise",
    config=AdviseConfig,
    first=("run",),
    on_processor=True,
    figures="jaxspec.studies.advise.view:figures",
    points="jaxspec.studies.advise.view:points",
    announce=lambda config: f"{config.architecture} with {config.draft} on {', '.join(config.device)}",
    out=run_directory("advise"),
)
