"""Autoregressive decoding on memories that compute: PIM and LogicPIM beside the xPU, each operator where it is faster."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.papers.elmoe3d.networks import CONTEXT_TOKENS, KV_BITS
from experiments.papers.elmoe3d.printed import BATCHES, MODELS
from experiments.papers.elmoe3d.stacked import targets
from hwmodels import catalog, step_cost, step_operators

__all__ = ["baseline_speedups"]

#: Names of the figure, and devices of the catalog.
_PLATFORMS = {"xPU-PIM": "elmoe3d-pim", "xPU-LogicPIM": "elmoe3d-logic-pim"}


@functools.cache
def baseline_speedups() -> dict[str, npt.NDArray[np.float64]]:
    """Speedups over the xPU alone by platform, "model batch"; tokens choose experts on their own."""
    own = {name: _operator_s(device) for name, device in _PLATFORMS.items()}
    alone = _operator_s("elmoe3d-xpu")
    return {name: alone.sum(-1) / np.minimum(alone, times).sum(-1) for name, times in own.items()}


def _operator_s(device_name: str) -> npt.NDArray[np.float64]:
    device, sizes = catalog.device(device_name), targets()

    def cost(architecture, bits, batch):
        work = step_operators(
            architecture, tokens=1.0, batch=batch, context_tokens=CONTEXT_TOKENS, weight_bits=bits, kv_bits=KV_BITS
        )
        return step_cost(device, work).operator_s

    by_batch = jax.vmap(cost, in_axes=(None, None, 0))
    found = jax.jit(jax.vmap(by_batch, in_axes=(0, 0, None)))(
        sizes.architecture, sizes.bits, jnp.asarray(BATCHES, jnp.float32)
    )
    assert found.shape[:2] == (len(MODELS), len(BATCHES))
    return np.asarray(found, np.float64)
