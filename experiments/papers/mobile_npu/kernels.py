"""Kernels by themselves: products of one token with each matrix (Fig. 15), softmax on chip (Fig. 14)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from experiments.papers.mobile_npu.printed import SOFTMAX_KEYS, SOFTMAX_QUERIES
from experiments.papers.mobile_npu.versions import LAYOUTS, exponential, layout, networks, weight_bits
from hwmodels import Device
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.vector_units import VectorUnits, softmax_time
from hwmodels.numerics.quick_jit import quick_jit

__all__ = ["EXPONENTIALS", "MATRICES", "gemv_seconds", "matrices", "softmax_seconds"]

#: The matrices of 7.1, by the kind that says their width; W_k and W_v are left out there.
MATRICES = {"W_q": "q", "W_o": "o", "W_gate": "gate", "W_up": "up", "W_down": "down"}

#: Versions of Fig. 14.
EXPONENTIALS = ("table", "float16", "float32")


@functools.cache
def matrices() -> list[dict[str, Any]]:
    """Every matrix of the four networks: rows that are summed over, columns, stored bits."""
    bits, found = weight_bits(), []
    for model, network in networks().items():
        hidden, inner = float(network.hidden_size), float(network.intermediate_size)
        heads = float(network.num_heads * network.head_dim)
        sizes = {"W_q": (hidden, heads), "W_o": (heads, hidden), "W_gate": (hidden, inner), "W_up": (hidden, inner)}
        for name, (k, n) in (sizes | {"W_down": (inner, hidden)}).items():
            found.append({"model": model, "matrix": name, "k": k, "n": n, "weight_bits": bits[MATRICES[name]]})
    return found


@quick_jit
def _products(npu: MatrixVectorNpu, k: np.ndarray, n: np.ndarray, bits: np.ndarray) -> jax.Array:
    return npu.product_time(1.0, k, n, weight_bits=bits)


def gemv_seconds(device: Device) -> Mapping[str, np.ndarray]:
    """Version of Fig. 15 -> seconds of one token's product with each of `matrices`."""
    k, n, bits = (np.array([one[key] for one in matrices()], np.float32) for key in ("k", "n", "weight_bits"))
    return {name: np.asarray(_products(layout(device, name), k, n, bits), np.float64) for name in LAYOUTS}


@quick_jit
def _softmaxes(vector: VectorUnits, queries: np.ndarray, keys: np.ndarray) -> jax.Array:
    return softmax_time(vector, queries, keys)


def softmax_seconds(device: Device, step_packets: float) -> Mapping[str, np.ndarray]:
    """Version of Fig. 14 -> seconds of one head's softmax, "query key" over the paper's lengths."""
    queries, keys = np.meshgrid(
        np.array(SOFTMAX_QUERIES, np.float32), np.array(SOFTMAX_KEYS, np.float32), indexing="ij"
    )
    units = {version: exponential(device, version, step_packets) for version in EXPONENTIALS}
    return {name: np.asarray(_softmaxes(npu.vector, queries, keys), np.float64) for name, npu in units.items()}
