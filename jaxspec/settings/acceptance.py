"""Settings that say how often a draft is accepted, where no network runs: a number, a table of points, or a finished run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from jaxspec.errors import InputError
from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting

__all__ = ["ALPHA", "AcceptanceSource"]

#: Column of a table of points that is acceptance; the others are knobs.
ALPHA = "alpha_token"


@dataclasses.dataclass(frozen=True)
class AcceptanceSource(Settings):
    """Acceptance of a draft by its knobs.

    Raises:
        InputError: none of the three, or several; points without acceptance.
    """

    form: ClassVar[str] = "give one of alpha_token, points (columns of knobs and alpha_token) and run (a directory)"

    alpha_token: float | None = setting(None, "One acceptance for all drafts.", low=0, high=1, unset="none")
    points: dict[str, list[float]] = setting(
        dict, "Columns of knobs and of alpha_token, one entry per point.", sizes=(1e-30, 1e30)
    )
    run: str | None = setting(None, "Run directory of a finished jaxspec tune or evaluate.", unset="none")
    source: str = setting("given in the file", "Origin of the points, in words.")

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in ("alpha_token", "points", "run") if getattr(self, name) not in (None, {})]
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
        return {} if self.run is None else {f"{self.run}/result.json": Path(self.run) / "result.json"}
