"""From one product of matrices to operators: products as a unit has them, everything else at the roofline."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.unit import UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import MatrixShapes, OperatorWork

__all__ = ["products_of", "with_products"]


def products_of(work: OperatorWork) -> MatrixShapes:
    """Shapes of the products of each operator, "... operator".

    Raises:
        ValueError: the work does not say.
    """
    if work.shapes is None:
        raise ValueError(
            "the work has no shapes, which a device with a matrix unit needs; build it with step_operators"
        )
    return work.shapes


def with_products(
    work: OperatorWork,
    device: Device,
    *,
    product_s: Float[Array, "... operator"],
    product_j: Float[Array, "... operator"] | None = None,
) -> UnitTimes:
    """Times of operators of which a unit knows one product each.

    Args:
        work: "*b operator".
        device: leaves "*b".
        product_s: of the arithmetic of one product.
        product_j: of one product, its on-chip traffic included; None: the chip's energy per FLOP.
    """
    shapes, roof = products_of(work), ROOFLINE.operator_times(work, device)
    multiplies, count = shapes.products > 0, shapes.products * work.launches
    energy_j = roof.energy_j
    if energy_j is not None and product_j is not None:
        energy_j = jnp.where(multiplies, product_j * count, energy_j)
    compute_s = jnp.where(multiplies, product_s * count, roof.compute_s)
    return dataclasses.replace(roof, compute_s=compute_s, energy_j=energy_j)
