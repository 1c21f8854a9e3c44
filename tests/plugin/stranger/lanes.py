"""A compute unit: multiply-adds side by side, which fill up before every product."""

from typing import ClassVar

import flax.struct

from hwmodels.compute.tile_counts import products_of, with_products
from hwmodels.compute.unit import SingleKernel
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, with_last_axis


@flax.struct.dataclass
class Lanes(SingleKernel):
    """A `ComputeUnit`; its fields are the numbers that a device's file gives."""

    short_title: ClassVar[str] = "lanes"
    title: ClassVar[str] = "a row of multiply-add lanes"

    lanes: Leaf = number(POSITIVE)  # multiply-adds in a cycle
    frequency_hz: Leaf = number(POSITIVE)
    fill_cycles: Leaf = number(NOT_NEGATIVE, default=0.0)  # before each product

    def operator_times(self, work, device, *, temperature=0.0):
        """Products in the lanes, everything else at the device's roofline."""
        unit, shapes = with_last_axis(self), products_of(work)
        seconds = (shapes.m * shapes.k * shapes.n / unit.lanes + unit.fill_cycles) / unit.frequency_hz
        return with_products(work, device, product_s=seconds)
