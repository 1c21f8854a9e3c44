"""Energy per token by component, on MT-Bench with 8 GB.

Energy per bit of both memories is printed; that of arithmetic, of communication, and static power are assumed in the catalog.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.model import Speedups
from experiments.papers.elmoe3d.printed import BATCHES, METHODS
from experiments.papers.elmoe3d.steps import Priced

__all__ = ["COMPONENTS", "TokenEnergy", "baseline_energy", "best_mode_energy", "energy_ratio"]

Cells = npt.NDArray[np.float64]

#: Of a step, as the paper lists them; the first two have printed numbers.
COMPONENTS = ("external_j", "bonded_j", "arithmetic_j", "communication_j", "static_j")
_ACCESSES = 2


@dataclasses.dataclass(frozen=True)
class TokenEnergy:
    """Joules per token by component, "component model batch"."""

    by_component: Cells
    speculates: npt.NDArray[np.bool_]  # "model batch": speculation is the faster mode

    @property
    def accesses_j(self) -> Cells:
        """Both memories, "model batch": what is printed."""
        return self.by_component[:_ACCESSES].sum(0)

    @property
    def total_j(self) -> Cells:
        """All components, "model batch"."""
        return self.by_component.sum(0)


def _joules(step: Priced) -> Cells:
    return np.stack([np.asarray(getattr(step, name), np.float64) for name in COMPONENTS])


def baseline_energy(half: Speedups) -> TokenEnergy:
    """Autoregressive decoding on the baseline."""
    joules = _joules(half.baseline) / np.asarray(BATCHES)
    return TokenEnergy(joules, np.zeros(joules.shape[1:], bool))


def best_mode_energy(half: Speedups, *, method: str = "Elastic-SD", draft_depth: int = 10) -> TokenEnergy:
    """A method in its faster mode."""
    place, steps, batches = METHODS.index(method), half.steps[method], np.asarray(BATCHES)
    alone = _joules(steps.autoregressive) / batches
    together = (draft_depth * _joules(steps.draft) + _joules(steps.verify)) / (half.tokens[:, place] * batches)
    faster = half.speculative[:, place] > half.autoregressive[:, place]
    return TokenEnergy(np.where(faster, together, alone), faster)


def energy_ratio(half: Speedups, *, all_energies: bool = False) -> Cells:
    """Energy per token of the baseline over that of Elastic-SD, "model batch": of accesses to memory, or of all components."""
    base, ours = baseline_energy(half), best_mode_energy(half)
    return base.total_j / ours.total_j if all_energies else base.accesses_j / ours.accesses_j
