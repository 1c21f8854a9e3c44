"""From one product of matrices to operators: products as a unit has them, everything else at the roofline."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.unit import UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import OPERATORS, MatrixShapes, OperatorWork
from hwmodels.numerics.axes import select
from hwmodels.numerics.scalars import with_last_axis

__all__ = ["at_one_depth", "products_of", "with_products"]

_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])


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


def at_one_depth(work: OperatorWork) -> MatrixShapes:
    """`products_of` for units that round sizes up to whole blocks: attention at the depth of what is cached.

    Expanding latents counts as depth, spread over the new tokens. It would fall as they become more, and a whole block less
    would make more tokens faster. Here it counts as rows, in as many FLOPs; without latents nothing changes.
    """
    shapes = products_of(work)
    if work.attention is None:
        return shapes
    depth = with_last_axis(work.attention.depth)
    other = _IS_ATTENTION & (shapes.k != depth)
    m = select(other, shapes.m * shapes.k / depth, shapes.m)
    return dataclasses.replace(shapes, m=m, k=select(other, depth, shapes.k))


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
