"""Energy of memory accesses per token, MT-Bench, 8 GB: the components whose energy per bit is printed.

Arithmetic, communication and static power are not printed. Accesses alone are compared with the printed ratios, and drawn
beside an assumed energy of arithmetic.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.model import Speedups, devices
from experiments.papers.elmoe3d.printed import METHODS
from experiments.papers.elmoe3d.steps import Priced, Steps
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["ARITHMETIC_J_PER_FLOP", "TokenEnergy", "baseline_energy", "best_mode_energy", "energy_ratio"]

Cells = npt.NDArray[np.float64]

#: assumed: 0.2 pJ per 8-bit multiply-add in 7 nm with its operands' registers; a multiply-add counts 2.
ARITHMETIC_J_PER_FLOP = 0.1e-12


@dataclasses.dataclass(frozen=True)
class TokenEnergy:
    """Joules per token, "model batch" each."""

    external_j: Cells
    bonded_j: Cells
    arithmetic_j: Cells
    speculates: npt.NDArray[np.bool_]  # the faster mode is speculation

    @property
    def accesses_j(self) -> Cells:
        """What is printed: both memories."""
        return self.external_j + self.bonded_j


class _PerBit(NamedTuple):
    bonded_j: float
    external_j: float


def _per_bit(capacity_gb: int) -> _PerBit:
    bonded, _ = devices(capacity_gb)
    return _PerBit(float(bonded.memory.energy_j_per_bit), float(bonded.spill[-1].energy_j_per_bit))


def _energy(steps: list[tuple[float, Priced]], tokens: Cells, per_bit: _PerBit) -> tuple[Cells, Cells, Cells]:
    total = lambda field: sum(count * np.asarray(getattr(step, field), np.float64) for count, step in steps) / tokens
    return (
        total("external_bytes") * BITS_PER_BYTE * per_bit.external_j,
        total("bonded_bytes") * BITS_PER_BYTE * per_bit.bonded_j,
        total("flops") * ARITHMETIC_J_PER_FLOP,
    )


def baseline_energy(found: Speedups, batches: Cells, *, capacity_gb: int = 8) -> TokenEnergy:
    """Autoregressive decoding on the baseline, which has the external memory alone."""
    external, _, arithmetic = _energy([(1.0, found.baseline)], batches, _per_bit(capacity_gb))
    nothing = np.zeros_like(external)
    return TokenEnergy(external, nothing, arithmetic, nothing.astype(bool))


def best_mode_energy(
    found: Speedups, batches: Cells, *, method: str = "Elastic-SD", draft_depth: int = 10, capacity_gb: int = 8
) -> TokenEnergy:
    """A method in its faster mode."""
    place, steps, per_bit = METHODS.index(method), found.steps[method], _per_bit(capacity_gb)
    alone = _energy([(1.0, steps.autoregressive)], batches, per_bit)
    cycle: Steps = steps
    together = _energy([(draft_depth, cycle.draft), (1.0, cycle.verify)], found.tokens[:, place] * batches, per_bit)
    faster = found.speculative[:, place] > found.autoregressive[:, place]
    external, bonded, arithmetic = (np.where(faster, b, a) for a, b in zip(alone, together, strict=True))
    return TokenEnergy(external, bonded, arithmetic, faster)


def energy_ratio(found: Speedups, batches: Cells) -> Cells:
    """Accesses of the baseline over Elastic-SD's, "model batch"."""
    return baseline_energy(found, batches).accesses_j / best_mode_energy(found, batches).accesses_j
