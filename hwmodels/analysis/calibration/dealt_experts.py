"""Rows of tables whose experts are dealt out to several GPUs, which no fit sees: what a fit to one GPU says of the busiest one.

Tables time the GPU with most choices. Its share of them, and the experts that it reads, are those of the tables' power laws by
`hwmodels.busiest_load` and `hwmodels.busiest_experts`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from hwmodels.analysis.calibration.expert_tables import ExpertTable
from hwmodels.analysis.calibration.experts import modelled_rows
from hwmodels.analysis.calibration.kernel_tables import DataSheet
from hwmodels.analysis.calibration.table_routing import EVEN, popularity_in_table
from hwmodels.compute.gpu_experts import GpuExperts, expert_layer_time
from hwmodels.network.operators.expert_sharing import busiest_experts, busiest_load
from hwmodels.network.routing import Routing

__all__ = ["DealtExperts", "dealt_experts"]


@dataclasses.dataclass(frozen=True)
class DealtExperts:
    """Dealt rows beside a unit's times, "row"."""

    predicted_s: npt.NDArray[np.float64]
    modelled: npt.NDArray[np.bool_]  # rows that the model is for, of uneven loads


def dealt_experts(
    table: ExpertTable, unit: GpuExperts, sheet: DataSheet, *, devices: int, cache_bytes: float = 0.0
) -> DealtExperts:
    """What a unit says of the busiest of several GPUs.

    Args:
        table: rows of so many devices, of which `touched` counts the experts of all.
        devices: >= 1.
        cache_bytes: of the second-level cache.
    """
    rows = list(zip(table.distribution.tolist(), *(_whole(table, name) for name in _SIZES)))
    shares = {row: _own_share(row, devices) for row in dict.fromkeys(rows)}
    share = np.array([shares[row] for row in rows])
    even = table.distribution == EVEN
    busiest = np.asarray(busiest_experts(jnp.asarray(table.touched), jnp.asarray(table.num_experts), float(devices)))
    touched = np.where(even, table.touched / devices, busiest)
    conditions = table.conditions() | {"touched": touched, "own_share": share}
    predicted = expert_layer_time(
        unit, weight_bits=table.weight_bits, **{k: jnp.asarray(v) for k, v in conditions.items()}
    )
    own = dataclasses.replace(table, touched=touched, experts_per_token=table.experts_per_token * share)
    return DealtExperts(np.asarray(predicted, np.float64), modelled_rows(own, sheet, cache_bytes) & ~even)


_SIZES = ("tokens", "num_experts", "experts_per_token")


def _whole(table: ExpertTable, name: str) -> list[int]:
    return getattr(table, name).astype(int).tolist()


def _own_share(row: tuple[str, int, int, int], devices: int) -> float:
    if row[0] == EVEN:
        return 1.0 / devices
    return float(_share(jnp.asarray(popularity_in_table(*row)), *map(float, row[1:]), float(devices)))


@jax.jit
def _share(
    popularity: Float[Array, " expert"], tokens: float, experts: float, chosen: float, devices: float
) -> Float[Array, ""]:
    routing = Routing(popularity=popularity)
    return busiest_load(experts, chosen, tokens, devices=devices, routing=routing) / devices
