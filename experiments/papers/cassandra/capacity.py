"""Fig. 14: tokens that fit into a memory budget beside the weights, by method and by readings of what the paper leaves open.

The paper prints two ratios and neither budget nor draft model. For every reading the budget is solved at which both ratios come
nearest.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from experiments.papers.cassandra import area_power
from experiments.papers.cassandra.area_power import printed_value
from experiments.papers.cassandra.speedups import FROZEN, PRUNED_CODED, footprint
from hwmodels import ALL_LAYER_MATRICES, catalog, parameters
from hwmodels.numerics.units import BITS_PER_BYTE, GB

__all__ = ["DRAFTS", "Reading", "best_reading", "readings"]

#: Drafts of "Llama3-based speculative decoding" that share its vocabulary.
DRAFTS = ("llama-3.2-1b", "llama-3.2-3b")

#: Weights of an Eagle-3 head for an 8B model: a projection of three states, a layer that reads two, a head of 32,000 tokens.
#: assumed: shapes of the public release for Llama 3.1 8B.
EAGLE_WEIGHTS = 3 * 4096 * 4096 + (2 * 4096) * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 32000 * 4096

#: Budgets that are tried.
_BUDGETS = np.linspace(17e9, 64e9, 4701)

#: Claims: over a separate Llama 3 draft, and over Eagle-3.
_PRINTED = ("CAS004", "CAS005")


class Reading(NamedTuple):
    """One way to read Fig. 14.

    Attributes:
        draft: the separate draft. pruned: how pruned weights are stored. kv_bits: per element of Cassandra's KV cache.
        end_bits: per weight of its embedding and head.
        budget_bytes: at which the larger of both relative errors is smallest.
        ratios: tokens of Cassandra-1 over those of a separate draft, and of Eagle-3, there.
        error: the larger relative error.
        at_24_gib: the ratios with the RTX 4090's memory.
    """

    draft: str
    pruned: str
    kv_bits: float
    end_bits: float
    budget_bytes: float
    ratios: tuple[float, float]
    error: float
    at_24_gib: tuple[float, float]

    def listed(self) -> dict[str, Any]:
        """As an entry of a detail."""
        return self._asdict() | {"budget_gb": self.budget_bytes / GB}


def _held(name: str) -> tuple[float, float, float]:
    """Weights of the layers' matrices, all others, and KV elements of a token."""
    architecture = catalog.architecture(name)
    counts = {kind: float(count) for kind, count in parameters(architecture).items()}
    layers = sum(counts[kind] for kind in ALL_LAYER_MATRICES)
    kv = 2 * float(architecture.num_layers * architecture.num_kv_heads * architecture.head_dim)
    return layers, sum(counts.values()) - layers, kv


def _tokens(budget: np.ndarray, weights_bits: float, kv_bits: float) -> np.ndarray:
    return np.maximum(budget - weights_bits / BITS_PER_BYTE, 0.0) / (kv_bits / BITS_PER_BYTE)


def _ratios(budget: np.ndarray, draft: str, pruned: str, kv_width: float, end_width: float) -> np.ndarray:
    layers, rest, kv = _held("llama-3.1-8b")
    small = _held(draft)
    width = float(footprint("Cassandra-1", FROZEN if pruned == "raw" else PRUNED_CODED).target_weight_bits["q"])
    ours = _tokens(budget, layers * width + rest * end_width, kv * kv_width)
    plain = (layers + rest) * 16
    separate = _tokens(budget, plain + (small[0] + small[1]) * 16, (kv + small[2]) * 16)
    own_kv = kv / float(catalog.architecture("llama-3.1-8b").num_layers)
    eagle = _tokens(budget, plain + EAGLE_WEIGHTS * 16, (kv + own_kv) * 16)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([ours / separate, ours / eagle])


@functools.cache
def readings() -> tuple[Reading, ...]:
    """All readings, the nearest first."""
    printed = np.array([[printed_value("claims", claim_id=claim)] for claim in _PRINTED])
    device = np.array([float(catalog.device("rtx-4090").memory.capacity_bytes)])
    readings = []
    widths = (8 + area_power.MEAN_CODE_BITS, 16.0)
    for reading in itertools.product(DRAFTS, ("raw", "coded"), widths, widths):
        ratios = _ratios(_BUDGETS, *reading)
        worst = np.nan_to_num(np.abs(ratios / printed - 1).max(axis=0), nan=np.inf)
        place = int(np.argmin(worst))
        there = _ratios(device, *reading)[:, 0]
        readings.append(
            Reading(
                *reading,
                float(_BUDGETS[place]),
                (float(ratios[0, place]), float(ratios[1, place])),
                float(worst[place]),
                (float(there[0]), float(there[1])),
            )
        )
    return tuple(sorted(readings, key=lambda reading: reading.error))


def best_reading() -> Reading:
    """The reading under which both ratios come nearest."""
    return readings()[0]
