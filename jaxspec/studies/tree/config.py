"""Settings of `jaxspec tree`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from jaxspec.settings.acceptance import UNTRACED, AcceptanceSettings
from jaxspec.settings.base import Unused
from jaxspec.settings.common import CommonConfig, StopwatchSettings
from jaxspec.settings.draft_kinds import (
    SELF,
    NetworkKnobSettings,
    check_draft_name,
    draft_help,
    draft_names,
    knobs_of_other_schemes,
    no_own_network,
)
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import SCHEME_FACTS, all_knobs
from jaxspec.studies.study import Study, run_directory

#: How trees of drafted tokens grow.
Search = Literal["prior", "width", "depth", "greedy"]


def _no_part_of_the_scheme(config: TreeConfig) -> str | None:
    """Of another draft than the target's compressed copy a scheme stores the target alone."""
    if config.draft == SELF or config.changes_target:
        return None
    return f"draft {config.draft!r} is not a compressed copy, and the scheme leaves the target as it is"


@dataclasses.dataclass(frozen=True)
class TreeConfig(NetworkKnobSettings, StopwatchSettings, CommonConfig, stated_beside=__file__):
    """`jaxspec tree`."""

    draft: str = setting(SELF, help=draft_help, check=check_draft_name, names=draft_names, objects="draft")
    nodes: int = setting(32)
    depth: int = setting(8)
    search: Search = setting("prior")
    context: int = same_as(CommonConfig, "context")
    contexts: tuple[int, ...] = setting((128, 512, 2048, 4096, 8192, 16384))

    acceptance_trace: str | None = same_as(AcceptanceSettings, "acceptance_trace")
    drafter: str | None = same_as(AcceptanceSettings, "drafter")
    dataset: str | None = same_as(AcceptanceSettings, "dataset")

    unused = (
        UNTRACED,
        Unused(("search", "stopwatch"), lambda config: config.acceptance_trace, "the trace says what chains gain"),
        *CommonConfig.unused,
        *StopwatchSettings.unused,
        knobs_of_other_schemes,
        lambda: (
            Unused(
                tuple(all_knobs()),
                lambda config: config.draft != SELF and f"draft {config.draft!r} is not a compressed copy",
            ),
        ),
        Unused(("scheme",), _no_part_of_the_scheme),
        Unused(("draft_tensor_parallel",), lambda config: no_own_network(config.draft)),
    )

    @property
    def input_files(self) -> dict[str, Path]:
        """Files that it names beside networks and devices."""
        return {} if self.acceptance_trace is None else {"acceptance_trace": Path(self.acceptance_trace)}

    @property
    def changes_target(self) -> bool:
        """Whether the target is another network than the checkpoint's because of the scheme."""
        return not SCHEME_FACTS[self.scheme].lossless


#: The study of draft trees.
TREE = Study(
    name="tree",
    config=TreeConfig,
    first=("nodes",),
    run="jaxspec.studies.tree.run:search_tree",
    figures="jaxspec.studies.tree.view:figures",
    announce=lambda config: (
        f"{config.draft} drafts for {config.model}, priced as {config.architecture} on {', '.join(config.device)}"
    ),
    out=run_directory("tree"),
    meshed=True,
)
