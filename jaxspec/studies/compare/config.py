"""Settings of `jaxspec compare`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from jaxspec.errors import InputError, hint
from jaxspec.settings.base import Unused
from jaxspec.settings.coercion import shown
from jaxspec.settings.common import CommonConfig, StopwatchSettings
from jaxspec.settings.compressions import LOSSY_NAMES, lossy_names
from jaxspec.settings.draft_kinds import SELF, NetworkKnobSettings, check_draft_name, draft_names, has_files
from jaxspec.settings.fields import setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import SCHEME_FACTS, all_knobs, names_that
from jaxspec.studies.scale.config import Task
from jaxspec.studies.study import Study, run_directory

#: Stands alone for an empty list.
NONE = "none"


def self_drafts() -> tuple[str, ...]:
    """Schemes that have a draft."""
    return names_that(lambda facts: facts.has_draft and facts.runs)


def tuned_result(run: str) -> Path:
    """The result of a run directory, or the file itself."""
    return Path(run) / "result.json" if os.path.isdir(run) else Path(run)


def _check_list(names: tuple[str, ...], what: str, check: Callable[[str], None]) -> None:
    if NONE in names:
        if len(names) > 1:
            raise InputError(f"{what} is {','.join(names)!r}; {NONE!r} stands alone: leave it out, or the others")
        return
    for name in names:
        check(name)


def _other_drafts() -> tuple[str, ...]:
    return tuple(name for name in draft_names() if name != SELF)


def _among(what: str, allowed: Callable[[], Collection[str]]) -> Callable[[tuple[str, ...]], None]:
    def check(name: str) -> None:
        if name not in allowed():
            raise InputError(f"{what} has {shown(name)}, which is unknown{hint(name, allowed())}")

    return lambda names: _check_list(names, what, check)


def _check_drafts(names: tuple[str, ...]) -> None:
    def check(name: str) -> None:
        if name == SELF:
            raise InputError(f"drafts has {SELF!r}; self-drafts are named by their schemes, in schemes")
        check_draft_name(name)

    _check_list(names, "drafts", check)


def _read_by_no_scheme(name: str, config: CompareConfig) -> str | None:
    read = any(spec.name == name for scheme in config.self_drafts for spec in SCHEME_FACTS[scheme].knob_specs)
    return None if read else "no scheme that is compared has such a knob"


def _no_own_network(config: CompareConfig) -> str | None:
    """By default a network that ships is compared where it fits."""
    own = config.drafts is None or any(map(has_files, config.named_drafts))
    return None if own else "no draft that is compared is a network of its own"


@dataclasses.dataclass(frozen=True)
class CompareConfig(StopwatchSettings, NetworkKnobSettings, CommonConfig, stated_beside=__file__):
    """`jaxspec compare`."""

    #: All drafts take this text: on 135 million parameters 24 prompts are estimated at half an hour of two cores, from the
    #: measured time of their steps.
    quick: ClassVar[Mapping[str, Any]] = {"prompts": 16, "calibration_prompts": 16}

    schemes: tuple[str, ...] = setting(
        ("cassandra1", "cassandra2", "mxint8", "any-precision"),
        help=lambda: (
            f"Schemes whose self-drafts are compared, separated by commas: {', '.join(self_drafts())}; or none."
        ),
        check=_among("schemes", self_drafts),
        names=self_drafts,
        objects="scheme",
    )
    drafts: tuple[str, ...] | None = setting(
        None,
        help=lambda: f"Other drafts, separated by commas: {', '.join(_other_drafts())}, directories, or none.",
        check=_check_drafts,
        names=_other_drafts,
        objects="draft",
    )
    lossy: tuple[str, ...] = setting(
        LOSSY_NAMES,
        help=lambda: f"Compression without a draft, separated by commas: {', '.join(lossy_names())}; or none.",
        check=_among("lossy", lossy_names),
        names=lossy_names,
        objects="scheme",
    )
    tuned: tuple[str, ...] | None = setting(None)
    task: Literal[Task, "none"] | None = setting(None)
    problems: int = setting(96)
    max_draft_length: int = setting(MAX_DRAFT_LENGTH, low=1, high=MAX_DRAFT_LENGTH)

    unused = (
        *CommonConfig.unused,
        *StopwatchSettings.unused,
        Unused(("problems",), lambda config: config.task == NONE, "the task is none"),
        Unused(("scheme",), lambda config: "compare stores its targets as schemes and lossy say"),
        lambda: tuple(
            Unused((name,), lambda config, name=name: _read_by_no_scheme(name, config)) for name in all_knobs()
        ),
        Unused(("draft_tensor_parallel",), _no_own_network),
    )

    @property
    def self_drafts(self) -> tuple[str, ...]:
        """Schemes whose drafts are compared."""
        return () if NONE in self.schemes else self.schemes

    @property
    def named_drafts(self) -> tuple[str, ...]:
        """Other drafts that the user named."""
        return tuple(name for name in self.drafts or () if name != NONE)

    @property
    def input_files(self) -> dict[str, Path]:
        """Files that a run depends on beside those that all commands name: results of tuned runs."""
        return {f"tuned {run}": tuned_result(run) for run in self.tuned or ()}

    @property
    def compressions(self) -> tuple[str, ...]:
        """Compressions that are compared."""
        return () if NONE in self.lossy else self.lossy


#: The study of all ways to decode faster.
COMPARE = Study(
    name="compare",
    config=CompareConfig,
    first=("schemes", "drafts"),
    figures="jaxspec.studies.compare.view:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("compare"),
    meshed=True,
)
