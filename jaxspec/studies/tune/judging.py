"""Hard candidates of a tuning run judged on calibration text, and the best of them elected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxspec.compress.footprint import limited_draft_bits, mean_draft_bits
from jaxspec.compress.knobs import Knobs, harden, uniform_knobs
from jaxspec.studies.measured.checking import window_tokens
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.tune.config import TuneConfig
from jaxspec.tuning.hard import best_length
from jaxspec.tuning.objective import DraftMeasurement, Pricing

__all__ = ["Judge", "Judged", "best_of", "finals_of", "judged_arrays", "judged_of"]

#: Rounding knobs to whole bits may overstep a limit a little; this share of it is let pass.
_ROUNDING_ALLOWANCE = 0.02

#: Numbers of a judged candidate.
_KEPT = ("speedup", "excess", "value")

#: Offsets that finals are elected at, of 8: of more, each says less that is new.
_OFFSETS = 2


def finals_of(config: TuneConfig, drafts: HardDrafts) -> HardDrafts:
    """The same drafts on windows of calibration text between those that knobs are tuned on: no gradient step saw them.

    There are fewer windows between than windows; programs are those of as many (see `HardDrafts.room`).
    Knobs fit the text that they were tuned on, by 1 to 3 % of a speedup. Where the text is too short for half as many
    windows between, it is that text itself.
    """
    text, tokens = drafts.work.setup.text, window_tokens(config)[0]
    found = text.calibration_between(config.calibration_prompts, tokens, config.seed)
    if len(found) < config.calibration_prompts / 2:
        return drafts
    return drafts.on_windows(found, "finals", room=len(drafts.work.setup.calibration_prompts))


class Judged(NamedTuple):
    """A hard candidate.

    Attributes:
        knobs: hardened, with the draft length that pays best on the text that judges.
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
    """Judges candidates by a run's own objective and limits.

    Limits are about the calibration text that knobs are tuned on, as a result shows them.
    """

    def __init__(self, config: TuneConfig, drafts: HardDrafts, finals: HardDrafts):
        """Args: finals: the same drafts on the text that elects."""
        self._config, self._drafts, self._finals = config, drafts, finals

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
            measure: None: on the text that elects, with cycles that begin at several offsets.
        """
        config, knobs = self._config, harden(knobs)
        measured = self._finals.measured_at(knobs, _OFFSETS) if measure is None else measure(knobs)
        length, speedup = best_length(pricing, measured)
        value = {"speedup": speedup, "kl": -float(measured.kl), "bits_per_byte": -self._bits_per_byte(measured)}
        return Judged(harden(knobs, draft_length=length), speedup, self._excess(knobs), value[config.objective])

    def _bits_per_byte(self, measured: DraftMeasurement) -> float:
        return float(measured.cross_entropy) / np.log(2) / self._drafts.work.setup.bytes_per_token

    def _excess(self, knobs: Knobs) -> float:
        """By how much a hard draft oversteps the limits, as shares of them."""
        config = self._config
        if config.max_kl is None and config.max_bits_per_byte is None and self.draft_budget is None:
            return 0.0
        measured = self._drafts.measured(knobs)
        limits = (
            (float(measured.kl), config.max_kl),
            (self._bits_per_byte(measured), config.max_bits_per_byte),
            *((float(bits), self.draft_budget) for bits in limited_draft_bits(measured.footprint)),
        )
        return sum(max(got / limit - 1 - _ROUNDING_ALLOWANCE, 0.0) for got, limit in limits if limit is not None)

    def prepare(self) -> None:
        """Make the text that elects ready, which is a stage with a bar of its own."""
        _ = self._finals.calibration


def judged_arrays(found: Sequence[Judged]) -> dict[str, np.ndarray]:
    """What a run keeps of judged candidates; their knobs follow from the stages before."""
    rows = {name: np.array([getattr(one, name) for one in found]) for name in _KEPT}
    return rows | {"draft_length": np.array([one.knobs.draft_length for one in found])}


def judged_of(candidates: Sequence[Knobs], kept: Mapping[str, np.ndarray]) -> list[Judged]:
    """Inverse of `judged_arrays`."""
    lengths, numbers = kept["draft_length"].tolist(), zip(*(kept[name].tolist() for name in _KEPT), strict=True)
    hardened = [harden(knobs, draft_length=length) for knobs, length in zip(candidates, lengths, strict=True)]
    return [Judged(knobs, **dict(zip(_KEPT, row, strict=True))) for knobs, row in zip(hardened, numbers, strict=True)]


def best_of(candidates: Sequence[Judged]) -> Judged:
    """The best candidate; the first on a tie."""
    return max(candidates, key=lambda found: found.rank)
