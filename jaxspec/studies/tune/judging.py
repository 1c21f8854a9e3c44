"""Hard candidates of a tuning run judged on calibration text, and the best of them elected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxspec.compress.footprint import mean_draft_bits
from jaxspec.compress.knobs import Knobs, harden, uniform_knobs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.tune.config import TuneConfig
from jaxspec.tuning.hard import best_length
from jaxspec.tuning.objective import DraftMeasurement, Pricing

__all__ = ["Judge", "Judged"]

#: Rounding knobs to whole bits may overstep a limit a little; this share of it is let pass.
_ROUNDING_ALLOWANCE = 0.02

#: Candidates whose values differ by less than this share of the best one are told apart at several offsets of cycles: one
#: offset of 96 windows errs by 1 to 2 %.
_NEAR = 0.03

#: Offsets that finals are elected at, of 8. All of them would make a run 10 % longer; these take what judging twice took.
_OFFSETS = 4


class Judged(NamedTuple):
    """A candidate on calibration text.

    Attributes:
        knobs: hardened, with the draft length that pays best there.
        speedup: over 16-bit decoding, predicted there.
        excess: by how much it oversteps limits, as shares of them.
        value: of the run's objective; more is better.
    """

    knobs: Knobs
    speedup: float
    excess: float
    value: float

    @property
    def rank(self) -> tuple[float, float]:
        """More is better: a candidate that oversteps a limit loses to any that oversteps it less."""
        return -self.excess, self.value


class Judge:
    """Judges candidates by a run's own objective and limits."""

    def __init__(self, config: TuneConfig, drafts: HardDrafts):
        self._config, self._drafts = config, drafts

    @cached_property
    def draft_budget(self) -> float | None:
        """Bits per weight to keep to: given, or those of the default where quality alone is the objective."""
        if self._config.draft_bits is not None or self._config.objective == "speedup":
            return self._config.draft_bits
        setup = self._drafts.work.setup
        default = self._drafts.measured(uniform_knobs(setup.scheme, setup.config))
        return float(mean_draft_bits(default.footprint))

    def judged(
        self, pricing: Pricing, knobs: Knobs, measure: Callable[[Knobs], DraftMeasurement] | None = None
    ) -> Judged:
        """A candidate, hardened.

        Args:
            measure: None: with cycles that begin at several offsets of the text.
        """
        config, knobs = self._config, harden(knobs)
        measured = self._drafts.measured_at(knobs, _OFFSETS) if measure is None else measure(knobs)
        length, speedup = best_length(pricing, measured)
        bits_per_byte = float(measured.cross_entropy) / np.log(2) / self._drafts.work.setup.bytes_per_token
        value = {"speedup": speedup, "kl": -float(measured.kl), "bits_per_byte": -bits_per_byte}[config.objective]
        limits = (
            (float(measured.kl), config.max_kl),
            (bits_per_byte, config.max_bits_per_byte),
            (float(mean_draft_bits(measured.footprint)), self.draft_budget),
        )
        excess = [max(got / limit - 1 - _ROUNDING_ALLOWANCE, 0.0) for got, limit in limits if limit is not None]
        return Judged(harden(knobs, draft_length=length), speedup, sum(excess), value)

    def best(self, pricing: Pricing, candidates: Sequence[Knobs]) -> Judged:
        """The best candidate; the first on a tie. Those that come near it at one offset are judged at several."""
        once = [self.judged(pricing, knobs, self._drafts.measured) for knobs in candidates]
        leader = max(once, key=lambda found: found.rank)
        near = [found for found in once if self._near(found, leader)]
        return max((self.judged(pricing, found.knobs) for found in near), key=lambda found: found.rank)

    @staticmethod
    def _near(found: Judged, leader: Judged) -> bool:
        return found.excess <= leader.excess + _NEAR and found.value >= leader.value - _NEAR * abs(leader.value)
