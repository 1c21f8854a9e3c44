"""Whole steps on a phone: N samples of one prompt are N sequences that share it.

The prompt's keys and values are read once for all of them, and so are the weights. That samples have tokens of their own is
left out, as they are few beside the prompt.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.mobile_npu.versions import weight_bits
from hwmodels import OPERATORS, Architecture, Device, Footprint, StepCost, Workload, baselines, price_steps
from hwmodels.network.operators import prefill_step
from hwmodels.numerics.quick_jit import quick_jit

__all__ = ["BATCHES", "PROMPTS", "Decoding", "decode", "footprint", "gpu_footprint", "prefill_tokens_per_s"]

#: Batch sizes of Fig. 11 and 12, and prompts of Fig. 17.
BATCHES = (1, 2, 4, 8, 16)
PROMPTS = (512, 1024, 2048, 4096)


class Decoding(NamedTuple):
    """Steps at several batch sizes and prompts, "prompt batch"."""

    step_s: np.ndarray
    head_share: np.ndarray  # of the vocabulary projection in the step
    energy_j: np.ndarray | None  # None where a device says nothing of its energy

    def tokens_per_s(self) -> np.ndarray:
        """Of all samples together."""
        return np.array(BATCHES) / self.step_s

    def power_w(self) -> np.ndarray | None:
        """Mean over a step."""
        return None if self.energy_j is None else self.energy_j / self.step_s


def _stored(bits: dict[str, float]) -> Footprint:
    return Footprint(draft_weight_bits=bits, target_weight_bits=bits, draft_kv_bits=16.0, target_kv_bits=16.0)


def footprint() -> Footprint:
    """Stored widths of the paper on the NPU; the cache is 16 bits wide."""
    return _stored(weight_bits())


def gpu_footprint() -> Footprint:
    """The same with Q4_0 in all layers, for which the GPU's kernels are made (7.1)."""
    bits = weight_bits()
    return _stored(bits | {"down": bits["up"]})


@quick_jit
def _steps(device: Device, network: Architecture, stored: Footprint, prompt: float, samples: jax.Array) -> StepCost:
    def one(batch: jax.Array) -> StepCost:
        workload = Workload(batch=batch, context_tokens=prompt, shared_tokens=prompt)
        return baselines(device, network, footprint=stored, workload=workload).stored.cost

    return jax.vmap(one)(samples)


def decode(
    device: Device, network: Architecture, prompts: tuple[int, ...] = PROMPTS, stored: Footprint | None = None
) -> Decoding:
    """Steps of `BATCHES` samples behind each prompt; stored as on the NPU unless given."""
    samples, stored = jnp.asarray(BATCHES, float), stored or footprint()
    found = [_steps(device, network, stored, float(prompt), samples) for prompt in prompts]
    total, operators = (
        np.stack([np.asarray(x, np.float64) for x in part])
        for part in zip(*((one.total_s, one.operator_s) for one in found), strict=True)
    )
    power = [one.power_w for one in found]
    energy_j = None if power[0] is None else total * np.stack([np.asarray(one, np.float64) for one in power])
    return Decoding(total, operators[..., OPERATORS.index("lm_head")] / total, energy_j)


@quick_jit
def _prefill(device: Device, network: Architecture, stored: Footprint, prompt: float) -> jax.Array:
    (priced,) = price_steps(device, network, [prefill_step(Workload(prompt_tokens=prompt), footprint=stored)])
    return prompt / priced.cost.total_s


def prefill_tokens_per_s(device: Device, network: Architecture, prompt: int, stored: Footprint | None = None) -> float:
    """Prompt tokens per second of one sequence; stored as on the NPU unless given."""
    return float(_prefill(device, network, stored or footprint(), float(prompt)))
