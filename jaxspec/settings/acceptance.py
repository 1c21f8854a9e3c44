"""Settings that say how often a draft is accepted, where no network runs.

`AcceptanceSettings` are rates, or what an engine prints; `AcceptanceSource` is acceptance by the draft's knobs.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import ClassVar

from jaxspec.errors import InputError
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting

__all__ = [
    "ACCEPTANCE_UNUSED",
    "ALPHA",
    "MAX_PREDICTED_LENGTH",
    "PRINTED",
    "UNTRACED",
    "AcceptanceSettings",
    "AcceptanceSource",
]

#: Longest chain that is priced.
MAX_PREDICTED_LENGTH = 64

#: Column of a table of points that is acceptance; the others are knobs.
ALPHA = "alpha_token"

#: Settings that give acceptance as engines print it, or token by token.
PRINTED = ("accepted_per_cycle", "acceptance_cumulative", "acceptance_log", "acceptance_trace")


def _few_positions(numbers: tuple[float, ...]) -> None:
    if len(numbers) > MAX_PREDICTED_LENGTH:
        raise InputError(f"acceptance has {len(numbers)} positions; allowed are 1 to {MAX_PREDICTED_LENGTH}")


def _falling(shares: tuple[float, ...]) -> None:
    _few_positions(shares)
    for position, (before, share) in enumerate(itertools.pairwise(shares), 2):
        if share > before:
            raise InputError(
                f"acceptance_cumulative rises from {before:g} to {share:g} at position {position}; give the shares of all "
                "cycles in which each position is accepted, or conditional rates as acceptance"
            )


@dataclasses.dataclass(frozen=True)
class AcceptanceSettings(Settings, stated_beside=__file__):
    """How often a draft is accepted: conditional rates, or one of the forms in which engines print it.

    Raises:
        InputError: two forms at once; numbers that no draft can have.
    """

    heading: ClassVar[str] = "Acceptance"

    acceptance: tuple[float, ...] | None = setting(None, check=_few_positions)
    accepted_per_cycle: float | None = setting(None, low=1, high=MAX_PREDICTED_LENGTH + 1)
    draft_length: int | None = setting(None, low=1, high=MAX_PREDICTED_LENGTH)
    acceptance_cumulative: tuple[float, ...] | None = setting(None, check=_falling)
    acceptance_log: str | None = setting(None)

    acceptance_trace: str | None = setting(None)
    drafter: str | None = setting(None)
    dataset: str | None = setting(None)

    def __post_init__(self):
        super().__post_init__()
        ways = [name for name in PRINTED if getattr(self, name) is not None]
        if len(ways) > 1:
            raise InputError(f"{' and '.join(ways)} came; each says how often a draft is accepted: give one of them")
        if self.accepted_per_cycle is None:
            return
        if self.draft_length is None:
            raise InputError(
                f"accepted_per_cycle is {self.accepted_per_cycle:g} and draft_length is missing; give the number of tokens "
                "that each of these cycles drafted"
            )
        if self.accepted_per_cycle > self.draft_length + 1:
            raise InputError(
                f"accepted_per_cycle is {self.accepted_per_cycle:g} and draft_length is {self.draft_length}; a cycle gains 1 "
                f"to {self.draft_length + 1} tokens then"
            )

    @property
    def acceptance_form(self) -> str | None:
        """The setting that says how often a draft is accepted; None: none does."""
        return next((name for name in (*PRINTED, "acceptance") if getattr(self, name) is not None), None)

    @property
    def log_length_must_agree(self) -> bool:
        """Whether draft_length is that of the log alone, and not also of the draft that is priced."""
        return True

    @property
    def input_files(self) -> dict[str, Path]:
        """Files that it names beside networks and devices."""
        return {name: Path(name) for name in (self.acceptance_log, self.acceptance_trace) if name is not None}


def _printed(config: AcceptanceSettings) -> str | None:
    form = config.acceptance_form
    return f"{form} says what is accepted" if form in PRINTED else None


def _counted_length(config: AcceptanceSettings) -> str | None:
    form = config.acceptance_form
    return None if form in ("accepted_per_cycle", "acceptance_log") else "no accepted_per_cycle or acceptance_log came"


def _every_position(config: AcceptanceSettings) -> str | None:
    form = config.acceptance_form
    several = form == "acceptance" and len(config.acceptance or ()) > 1
    return f"{form} names every position" if several or form == "acceptance_cumulative" else None


#: Settings of a trace go unread without one.
UNTRACED = Unused(("drafter", "dataset"), lambda config: not config.acceptance_trace, "no acceptance_trace came")

#: Settings that go unread beside others of acceptance.
ACCEPTANCE_UNUSED = (
    Unused(("acceptance",), _printed),
    UNTRACED,
    Unused(("draft_length",), _counted_length),
    Unused(("max_draft_length",), _every_position),
)


@dataclasses.dataclass(frozen=True)
class AcceptanceSource(AcceptanceSettings, stated_beside=__file__):
    """Acceptance of a draft by its knobs, or the same whatever they are.

    Raises:
        InputError: none of its forms, or several; points without acceptance.
    """

    form: ClassVar[str] = (
        "give one of alpha_token, points (columns of knobs and alpha_token), run (a directory), and acceptance by position or "
        "as engines print it: acceptance, accepted_per_cycle with draft_length, acceptance_cumulative, acceptance_log"
    )

    unused = ACCEPTANCE_UNUSED[:3]

    alpha_token: float | None = setting(None)
    points: dict[str, list[float]] = setting(dict, sizes=(1e-30, 1e30))
    run: str | None = setting(None)
    source: str = setting("given in the file")

    def __post_init__(self):
        super().__post_init__()
        names = ("alpha_token", "points", "run", "acceptance", *PRINTED)
        given = [name for name in names if getattr(self, name) not in (None, {})]
        if len(given) != 1:
            raise InputError(f"{' and '.join(given) or 'nothing'} came; {self.form}")
        if self.points and ALPHA not in self.points:
            raise InputError(
                f"points have columns {', '.join(self.points)}; add {ALPHA}, one probability for each point"
            )
        for chance in self.points.get(ALPHA, ()):
            if not 0 <= chance <= 1:
                raise InputError(f"points.{ALPHA} has {chance:g}; allowed is 0 to 1")

    @property
    def files(self) -> dict[str, Path]:
        """Files that it names, by what they are called in records."""
        run = {} if self.run is None else {f"{self.run}/result.json": Path(self.run) / "result.json"}
        return run | self.input_files
