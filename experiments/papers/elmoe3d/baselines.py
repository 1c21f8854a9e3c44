"""Autoregressive decoding of the targets on the paper's other accelerators, which compute in or near the external memory."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.networks import CONTEXT_TOKENS, KV_BITS
from experiments.papers.elmoe3d.printed import BATCHES
from experiments.papers.elmoe3d.stacked import targets
from hwmodels import catalog, step_cost, step_operators

__all__ = ["baseline_speedups"]

#: Names in the paper, and devices of the catalog.
_PLATFORMS = {
    "xPU-PIM": "elmoe3d-xpu-pim",
    "xPU-LogicPIM": "elmoe3d-xpu-logic-pim",
    "xPU-NMP": "elmoe3d-xpu-nmp",
}


@functools.cache
def baseline_speedups() -> dict[str, npt.NDArray[np.float64]]:
    """Speedups over the xPU alone by platform, "model batch"; tokens choose experts on their own."""
    alone = _step_s("elmoe3d-xpu")
    return {name: alone / _step_s(device) for name, device in _PLATFORMS.items()}


def _step_s(device_name: str) -> npt.NDArray[np.float64]:
    device, sizes = catalog.device(device_name), targets()

    def seconds(architecture: Any, bits: Any, batch: Any) -> Any:
        work = step_operators(
            architecture, tokens=1.0, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=KV_BITS
        )
        return step_cost(device, work).total_s

    cells = jax.vmap(jax.vmap(seconds, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    batches = jnp.asarray(BATCHES, jnp.float32)
    return np.asarray(jax.jit(cells)(sizes.architecture, sizes.bits, batches), np.float64)
