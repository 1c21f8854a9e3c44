"""A command: from which acceptance on speculation pays, if a draft step costs a given share of a target's."""

import dataclasses

from jaxspec.report import Shown, Table
from jaxspec.results import Result, predicted
from jaxspec.results.records import UNKNOWN, Quantity
from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting
from jaxspec.studies.study import Study


@dataclasses.dataclass(frozen=True)
class BreakevenConfig(Settings):
    """`jaxspec breakeven`."""

    draft_share: float = setting(0.1, "Time of a draft step, as a share of the target's.", low=0, high=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BreakevenResult(Result):
    """The least acceptance at which one drafted token pays."""

    alpha_token: Quantity[float] = UNKNOWN


def breakeven(config: BreakevenConfig) -> BreakevenResult:
    """(1 + alpha) / (1 + share) > 1 where alpha > share."""
    return BreakevenResult(alpha_token=predicted(config.draft_share))


def shown(found: BreakevenResult) -> Shown:
    """A table of one number."""
    table = Table("One drafted token")
    table.add_column("pays from an acceptance of")
    table.add_row(f"{found.alpha_token.value:g}")
    return Shown(found.plain(), [table])


BREAKEVEN = Study(
    name="breakeven",
    config=BreakevenConfig,
    help="Tell from which acceptance on speculation pays.",
    run=breakeven,
    present=shown,
)
