"""The default compute unit: arithmetic at the data sheet's rate, bytes at the rate that streams reach.

Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785, per operator instead of per program.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.unit import ComputeUnit, SingleKernel, UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.scalars import Number, as_float, select, with_last_axis

__all__ = [
    "ROOFLINE",
    "Roofline",
    "RowCosts",
    "row_factor",
    "unit_of",
]

# Measured row costs: by how much a product of so many rows departs from a smooth form.


@dataclasses.dataclass(frozen=True)
class RowCosts:
    """Measured times over those of a form.

    Attributes:
        weights: elements of the matrices that were measured, increasing, > 0.
        rows: that were measured, increasing, > 0.
        factors: for each matrix, for each number of rows, > 0.
    Raises:
        ValueError: sizes that differ, or do not increase; a factor that is not positive.
    """

    weights: tuple[float, ...]
    rows: tuple[float, ...]
    factors: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for name, values in (("weights", self.weights), ("rows", self.rows)):
            increasing = all(one < other for one, other in itertools.pairwise(values))
            if not values or not all(map(math.isfinite, values)) or values[0] <= 0 or not increasing:
                raise ValueError(f"{name} are {values}; they must be one or more increasing positive numbers")
        if len(self.factors) != len(self.weights) or any(len(row) != len(self.rows) for row in self.factors):
            raise ValueError(
                f"factors have sizes {[len(row) for row in self.factors]}; they must be one list for each of "
                f"{len(self.weights)} weights, of one number for each of {len(self.rows)} rows"
            )
        if not all(math.isfinite(factor) and factor > 0 for row in self.factors for factor in row):
            raise ValueError("factors must be positive numbers")


def row_factor(costs: RowCosts, rows: Number, weights: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Measured time over the form's.

    Args:
        costs: static.
        rows: "*b", > 0.
        weights: "*b", > 0; elements of the matrix.
        temperature: one number in [0, 1]; at 0 the measured factor, at 1 none, in between that power of it.
    Returns:
        "*b", > 0; at temperature 0 and a measured matrix exact at the measured rows. Between rows, and between matrices, on a
        line over logarithms; beyond them that of the nearest one.
    Gradient: right but for kinks at the measured rows and matrices. Where a step lies between two neighbouring rows it is
        the step's mean slope: steep, and no guide; at temperature 1 the form alone counts, which is smooth.
    """
    place = jnp.log(jnp.asarray(as_float(rows)))
    size = jnp.log(jnp.asarray(as_float(weights)))
    knots = jnp.log(jnp.asarray(costs.rows, place.dtype))
    each = [jnp.interp(place, knots, jnp.log(jnp.asarray(row, place.dtype))) for row in costs.factors]
    log_factor = each[0]
    for (low, high), (one, other) in zip(itertools.pairwise(costs.weights), itertools.pairwise(each), strict=True):
        share = jnp.clip((size - math.log(low)) / (math.log(high) - math.log(low)), 0.0, 1.0)
        log_factor = log_factor + share * (other - one)
    return jnp.exp((1.0 - jnp.asarray(as_float(temperature))) * log_factor)


#: Operators whose arithmetic is products of matrices.
_MULTIPLIES = np.array([name == "attention" or name in MATRIX_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class Roofline(SingleKernel):
    """A unit without numbers of its own: the device's peak, efficiency and energy per operation are what it has."""

    short_title: ClassVar[str] = "roofline"
    title: ClassVar[str] = "a roofline"

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """FLOPs over a rate, whatever the shapes; nothing is counted, so that the temperature does not matter."""
        del temperature
        rate_flops_per_s = as_float(device.peak_flops_per_s) * as_float(device.compute_efficiency)
        compute_s = work.flops / with_last_axis(rate_flops_per_s)
        if device.vector_flops_per_s is not None:
            compute_s = select(_MULTIPLIES, compute_s, work.flops / with_last_axis(device.vector_flops_per_s))
        flop_j = device.energy_j_per_flop
        return UnitTimes(
            compute_s=compute_s,
            launch_s=with_last_axis(device.operator_latency_s),
            memory_share=tuple(with_last_axis(tier.efficiency) for tier in device.tiers),
            energy_j=None if flop_j is None else work.flops * with_last_axis(flop_j),
        )


#: The unit of a device that has none of its own.
ROOFLINE = Roofline()


def unit_of(device: Device) -> ComputeUnit:
    """The device's matrix unit, or the roofline where it has none."""
    return ROOFLINE if device.matrix_unit is None else device.matrix_unit
