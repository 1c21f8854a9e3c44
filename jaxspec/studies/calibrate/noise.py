"""Whether a machine was quiet enough for its times to be believed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

__all__ = ["Noise", "noise_of"]

#: Spread between the quartiles of a program's repeats, over their median, that is usual on a quiet machine at most.
QUIET_SPREAD = 0.10
#: Share of programs that may spread by more than three times that.
_LARGE, _LARGE_SHARE = 3 * QUIET_SPREAD, 0.10
#: How far a program that is timed again and again may drift, between the tenth and the ninetieth of a hundred.
_DRIFT = 0.25


@dataclasses.dataclass(frozen=True)
class Noise:
    """What was seen.

    Attributes:
        spread: median over programs of the distance of their quartiles, over their median.
        large_share: of programs that spread by much more.
        drift: of one program that was timed before each group: ninth decile over first, less one.
        load: tasks that wanted to run when the measurement began, over the cores; None where nothing says so.
        believed: whether the times can be.
    """

    spread: float
    large_share: float
    drift: float
    load: float | None
    believed: bool

    @property
    def words(self) -> str:
        """What was seen and what to do, in a sentence."""
        seen = (
            f"repeats of a program spread by {100 * self.spread:.0f} % in the median, {100 * self.large_share:.0f} % of the "
            f"programs by more than {100 * _LARGE:.0f} %, and one program drifted by {100 * self.drift:.0f} % over the run"
        )
        seen += f" (load per core at its beginning: {self.load:.1f})" if self.load is not None else ""
        if self.believed:
            return f"the machine was quiet: {seen}"
        return (
            f"the machine was too busy to be believed: {seen}; end what else runs on it and start anew with --force, or take "
            "--statistic least and more --repeats, which meets a quiet moment of each program more often"
        )


def noise_of(spreads: Sequence[float], probes: Sequence[float], load: float | None) -> Noise:
    """Judge a run.

    Args:
        spreads: of each program.
        probes: seconds of one program before each group.
    """
    spread = float(np.median(spreads)) if len(spreads) else 0.0
    large = float(np.mean(np.asarray(spreads) > _LARGE)) if len(spreads) else 0.0
    low, high = np.quantile(probes, [0.1, 0.9]) if len(probes) else (1.0, 1.0)
    drift = float(high / low - 1.0)
    believed = spread <= QUIET_SPREAD and large <= _LARGE_SHARE and drift <= _DRIFT
    return Noise(spread, large, drift, load, believed)
