"""Whole steps on a phone: N samples of one prompt are N sequences that share it.

The prompt's keys and values are read once for all of them, and so are the weights. That samples have tokens of their own is
left out, as they are few beside the prompt.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import root_scalar

from experiments.papers.mobile_npu.versions import (
    CONTEXT,
    LAYOUTS,
    SOFTMAX_KEYS,
    SOFTMAX_QUERIES,
    Fitted,
    calibrated_device,
    claim,
    exponential,
    layout,
    networks,
    printed,
    weight_bits,
)
from hwmodels import OPERATORS, Architecture, Case, Device, Footprint, StepCost, Workload, baselines, price_steps
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.vector_array import VectorUnits, softmax_time
from hwmodels.network.operators import prefill_step
from hwmodels.numerics.fast_compile import jit_fast_compile

__all__ = [
    "BATCHES",
    "EXPONENTIALS",
    "FITTED_NAMES",
    "MATRICES",
    "PROMPTS",
    "Decoding",
    "decode",
    "fit",
    "fitted_numbers",
    "footprint",
    "gemv_seconds",
    "gpu_footprint",
    "matrices",
    "prefill_tokens_per_s",
    "slowdown",
    "softmax_seconds",
    "softmax_speedups",
]


#: Batch sizes of Fig. 11 and 12, and prompts of Fig. 17.
BATCHES = (1, 2, 4, 8, 16)
PROMPTS = (512, 1024, 2048, 4096)


class Decoding(NamedTuple):
    """Steps at several batch sizes and prompts, "prompt batch".

    Attributes:
        head_share: of the vocabulary projection in the step.
        energies_j: by field of `StepEnergy`; None where a device says nothing of its energy.
    """

    step_s: np.ndarray
    head_share: np.ndarray
    energies_j: Mapping[str, np.ndarray] | None

    @property
    def energy_j(self) -> np.ndarray | None:
        """Of all causes."""
        return None if self.energies_j is None else np.sum(list(self.energies_j.values()), axis=0)

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


@jit_fast_compile
def _steps(device: Device, network: Architecture, stored: Footprint, prompt: float, samples: jax.Array) -> StepCost:
    def one(batch: jax.Array) -> StepCost:
        workload = Workload(batch=batch, context_tokens=prompt, shared_tokens=prompt)
        return baselines(Case(device, network, workload=workload, footprint=stored)).stored.cost

    return jax.vmap(one)(samples)


def decode(
    device: Device, network: Architecture, prompts: tuple[int, ...] = PROMPTS, stored: Footprint | None = None
) -> Decoding:
    """Steps of `BATCHES` samples behind each prompt; stored as on the NPU unless given."""
    samples, stored = jnp.asarray(BATCHES, float), stored or footprint()
    steps = [_steps(device, network, stored, float(prompt), samples) for prompt in prompts]
    stacked: Any = jax.tree.map(lambda *parts: np.stack([np.asarray(x, np.float64) for x in parts]), *steps)
    total, energy = stacked.total_s, stacked.energy
    energies_j = None if energy is None else vars(energy) | {"memory_j": energy.memory_j.sum(axis=-1)}
    return Decoding(total, stacked.operator_s[..., OPERATORS.index("lm_head")] / total, energies_j)


@jit_fast_compile
def _prefill(device: Device, network: Architecture, stored: Footprint, prompt: float) -> jax.Array:
    (priced,) = price_steps(device, network, [prefill_step(Workload(prompt_tokens=prompt), footprint=stored)])
    return prompt / priced.cost.total_s


def prefill_tokens_per_s(device: Device, network: Architecture, prompt: int, stored: Footprint | None = None) -> float:
    """Prompt tokens per second of one sequence; stored as on the NPU unless given."""
    return float(_prefill(device, network, stored or footprint(), float(prompt)))


# Kernels by themselves: products of one token with each matrix (Fig. 15), softmax on chip (Fig. 14).

#: The matrices of 7.1, by the kind that says their width; W_k and W_v are left out there.
MATRICES = {"W_q": "q", "W_o": "o", "W_gate": "gate", "W_up": "up", "W_down": "down"}

#: Versions of Fig. 14.
EXPONENTIALS = ("table", "float16", "float32")


@functools.cache
def matrices() -> list[dict[str, Any]]:
    """Every matrix of the four networks: rows that are summed over, columns, stored bits."""
    bits, rows = weight_bits(), []
    for model, network in networks().items():
        hidden, inner = float(network.hidden_size), float(network.intermediate_size)
        heads = float(network.num_heads * network.head_dim)
        sizes = {"W_q": (hidden, heads), "W_o": (heads, hidden), "W_gate": (hidden, inner), "W_up": (hidden, inner)}
        for name, (k, n) in (sizes | {"W_down": (inner, hidden)}).items():
            rows.append({"model": model, "matrix": name, "k": k, "n": n, "weight_bits": bits[MATRICES[name]]})
    return rows


@jit_fast_compile
def _products(npu: MatrixVectorNpu, k: np.ndarray, n: np.ndarray, bits: np.ndarray) -> jax.Array:
    return npu.product_time(1.0, k, n, weight_bits=bits)


def gemv_seconds(device: Device) -> Mapping[str, np.ndarray]:
    """Version of Fig. 15 -> seconds of one token's product with each of `matrices`."""
    k, n, bits = (np.array([one[key] for one in matrices()], np.float32) for key in ("k", "n", "weight_bits"))
    return {name: np.asarray(_products(layout(device, name), k, n, bits), np.float64) for name in LAYOUTS}


@jit_fast_compile
def _softmaxes(vector: VectorUnits, queries: np.ndarray, keys: np.ndarray) -> jax.Array:
    return softmax_time(vector, queries, keys)


def softmax_seconds(device: Device, step_packets: float) -> Mapping[str, np.ndarray]:
    """Version of Fig. 14 -> seconds of one head's softmax, "query key" over the paper's lengths."""
    queries, keys = np.meshgrid(
        np.array(SOFTMAX_QUERIES, np.float32), np.array(SOFTMAX_KEYS, np.float32), indexing="ij"
    )
    units = {version: exponential(device, version, step_packets) for version in EXPONENTIALS}
    return {name: np.asarray(_softmaxes(npu.vector, queries, keys), np.float64) for name, npu in units.items()}


# Four numbers of V75, each fitted to one printed number, one after the other.
#
# The catalog's `hexagon-v75` has them as they come out here; `tests` compares the two.

#: What each number was fitted to, by its name in print.
FITTED_NAMES = {
    "register_packets": "packets of a full register of codes, to 27 % slower than without dequantization",
    "step_packets": "packets of a polynomial's step, to the softmax's highest speedup over 32 bits",
    "row_packets": "packets of a softmax row, to its lowest speedup over 32 bits",
    "static_power_w": "power of the phone beside NPU, memory and CPU work, W, to 4.3 W with the 3B network",
}

_OVER = "32-bit floating-point exp"


def slowdown(fitted: Fitted) -> float:
    """Time over that without dequantization, mean over all matrices."""
    seconds = gemv_seconds(calibrated_device(fitted))
    return float(np.mean(seconds["ours"] / seconds["no dequantization"]))


def softmax_speedups(fitted: Fitted, version: str = "float32") -> np.ndarray:
    """Of the table over a polynomial, "query key"."""
    seconds = softmax_seconds(calibrated_device(fitted), fitted.step_packets)
    return seconds[version] / seconds["table"]


def _root(error, low: float, high: float) -> float:
    # Kernels are priced in single precision.
    return float(root_scalar(error, method="brentq", bracket=(low, high), xtol=1e-4, rtol=1e-5).root)


@functools.cache
def fit() -> Fitted:
    """The four numbers. The two of the softmax determine each other, so that one is solved within the other."""
    start = Fitted(18.0, 8.0, 500.0, 0.0)
    aim = 1.0 + claim("NPU005") / 100.0
    start = start._replace(
        register_packets=_root(lambda x: slowdown(start._replace(register_packets=x)) - aim, 10.0, 40.0)
    )
    low, high = (printed("fig14", over=_OVER, end=end) for end in ("lowest", "highest"))

    def with_row(row_packets: float) -> Fitted:
        try_step = lambda x: start._replace(row_packets=row_packets, step_packets=x)
        return try_step(_root(lambda x: softmax_speedups(try_step(x)).max() - high, 1.0, 40.0))

    row_packets = _root(lambda x: softmax_speedups(with_row(x)).min() - low, 0.0, 5000.0)
    fitted = with_row(row_packets)
    power = decode(calibrated_device(fitted), networks()["Qwen2.5-3B"], (int(CONTEXT),)).power_w()
    assert power is not None
    return fitted._replace(static_power_w=claim("NPU019") - float(np.mean(power)))


def fitted_numbers() -> dict[str, float]:
    """The four numbers by what they are and what they were fitted to."""
    return {FITTED_NAMES[name]: value for name, value in fit()._asdict().items()}
