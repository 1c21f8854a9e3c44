"""Autoregressive decoding of the targets on the paper's other accelerators, which compute in or near the external memory."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.networks import CONTEXT_TOKENS, KV_BITS
from experiments.papers.elmoe3d.printed import BATCHES
from experiments.papers.elmoe3d.stacked import targets
from hwmodels import catalog, step_cost, step_operators

__all__ = ["RivalStep", "baseline_speedups", "best_rival_energy"]

#: Names in the paper, and devices of the catalog.
_PLATFORMS = {
    "xPU-PIM": "elmoe3d-xpu-pim",
    "xPU-LogicPIM": "elmoe3d-xpu-logic-pim",
    "xPU-NMP": "elmoe3d-xpu-nmp",
}


class RivalStep(NamedTuple):
    """A step of decoding, "model batch"."""

    seconds: npt.NDArray[np.float64]
    accesses_j: npt.NDArray[np.float64]  # to memory, with crossing its interface
    total_j: npt.NDArray[np.float64]


@functools.cache
def baseline_speedups() -> dict[str, npt.NDArray[np.float64]]:
    """Speedups over the xPU alone by platform, "model batch"; tokens choose experts on their own."""
    alone = _step("elmoe3d-xpu").seconds
    return {name: alone / _step(device).seconds for name, device in _PLATFORMS.items()}


def best_rival_energy(*, all_energies: bool = False) -> npt.NDArray[np.float64]:
    """Joules per token on the fastest of them in each cell, "model batch": of accesses to memory, or of all components."""
    steps = [_step(device) for device in _PLATFORMS.values()]
    joules = np.stack([step.total_j if all_energies else step.accesses_j for step in steps])
    fastest = np.argmin([step.seconds for step in steps], axis=0)
    return np.take_along_axis(joules, fastest[None], axis=0)[0] / np.asarray(BATCHES)


@functools.cache
def _step(device_name: str) -> RivalStep:
    device, sizes = catalog.device(device_name), targets()

    def cost(architecture: Any, bits: Any, batch: Any) -> RivalStep:
        work = step_operators(
            architecture, tokens=1.0, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=KV_BITS
        )
        found = step_cost(device, work)
        assert found.energy is not None
        energy = found.energy
        return RivalStep(found.total_s, jnp.sum(energy.memory_j, -1) + energy.link_j, energy.total_j)  # pyright: ignore[reportArgumentType]

    cells = jax.vmap(jax.vmap(cost, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    batches = jnp.asarray(BATCHES, jnp.float32)
    found = jax.jit(cells)(sizes.architecture, sizes.bits, batches)
    return RivalStep(*(np.asarray(column, np.float64) for column in found))
