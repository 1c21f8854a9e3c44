"""A compute unit in one file, as an example of what it takes: lanes of multiply-adds that fill up before every product.

Copied to `hwmodels/compute/` with one line in `hwmodels/catalog/units.py` it is a kind of unit that any device file may name.
"""

from typing import ClassVar

import flax.struct

from hwmodels.compute.tile_counts import products_of, with_products
from hwmodels.compute.unit import SingleKernel
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, as_float, with_last_axis


@flax.struct.dataclass
class ToyUnit(SingleKernel):
    """A compute unit (see `ComputeUnit`). Every field is a leaf, "*b", and a number of a device's file."""

    short_title: ClassVar[str] = "toy"
    title: ClassVar[str] = "a row of multiply-add lanes"

    lanes: Leaf = number(POSITIVE)  # multiply-adds in a cycle
    frequency_hz: Leaf = number(POSITIVE)
    fill_cycles: Leaf = number(NOT_NEGATIVE, default=0.0)  # before each product
    mac_energy_j: Leaf = number(NOT_NEGATIVE, default=0.0)

    @property
    def elements(self):
        """Lanes, "*b": what `Chip.element_area_m2` is the area of one of."""
        return as_float(self.lanes)

    def operator_times(self, work, device, *, temperature=0.0):
        """Products in the lanes, everything else at the device's roofline."""
        del temperature  # no tile is counted
        unit, shapes = with_last_axis(self), products_of(work)
        macs = shapes.m * shapes.k * shapes.n
        seconds = (macs / unit.lanes + unit.fill_cycles) / unit.frequency_hz
        return with_products(work, device, product_s=seconds, product_j=macs * unit.mac_energy_j)
