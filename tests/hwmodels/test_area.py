"""Area of a die by the size of what computes on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Chip, catalog
from hwmodels.analysis.design_point import chip_area
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.systolic.array import OnChipBuffer, SystolicArray
from hwmodels.compute.vector_array import VectorArray
from hwmodels.decoders import Decoder

BUFFER = OnChipBuffer(1e12, 4.0, 0.0)
CHIP = Chip(energy_j_per_flop=0.7e-12, static_power_w=3.0, area_m2=9e-5, element_area_m2=484e-12)
DECODER = Decoder(frequency_hz=1e9, symbols_per_cycle=1.0, count=11.0, area_m2=3.6e-9, kind="huffman_cam")

#: Unit, its elements by hand, the fields that its size is.
UNITS = {
    "systolic": (SystolicArray(12.0, 10.0, 1e9, 0.0, BUFFER, BUFFER, BUFFER), 120, ("rows", "columns")),
    "fpga": (FpgaArray(12.0, 7.0, 1e9, macs_per_pe=3.0), 252, ("rows", "columns", "macs_per_pe")),
    "near memory": (NearMemoryUnit(5.0, 3.0, 7.0, 2.0, 1e9), 210, ("pes", "reuse", "block_depth", "block_columns")),
    "vector": (VectorArray(3.0, 5.0, 2.0, 7.0, 1e9), 210, ("pe_rows", "pe_columns", "vector_macs", "vector_width")),
    "gpu": (catalog.device("a100-sxm-80gb").matrix_unit, 108, ("multiprocessors",)),
}


@pytest.fixture(params=UNITS)
def unit(request):
    return UNITS[request.param]


def area(device):
    found = chip_area(device)
    assert found is not None
    return found


def test_area_by_hand(toy_device, unit):
    device = toy_device.replace(matrix_unit=unit[0], chip=CHIP, decoder=DECODER)
    assert float(area(device)) == pytest.approx(9e-5 + unit[1] * 484e-12 + 11 * 3.6e-9, rel=1e-6)


def test_more_of_anything_is_never_smaller(toy_device, unit):
    device = toy_device.replace(matrix_unit=unit[0], chip=CHIP, decoder=DECODER)
    once = float(area(device))
    for field in unit[2]:
        larger = unit[0].replace(**{field: getattr(unit[0], field) * 1.5})
        assert float(area(device.replace(matrix_unit=larger))) > once
    assert float(area(device.replace(decoder=DECODER.replace(count=12.0)))) > once
    assert float(area(device.replace(chip=CHIP.replace(area_m2=1e-4)))) > once


def test_gradient_in_the_size(toy_device, unit, check_gradient, x64):
    fields = unit[2]

    def of_size(sizes):
        changed = unit[0].replace(**dict(zip(fields, sizes, strict=True)))
        return area(toy_device.replace(matrix_unit=changed, chip=CHIP, decoder=DECODER)) - 9e-5

    check_gradient(of_size, [float(getattr(unit[0], field)) for field in fields])
    batch = jnp.arange(3.0, 6.0)
    areas = jax.jit(jax.vmap(lambda side: of_size([side, *(2.0 for _ in fields[1:])])))(batch)
    np.testing.assert_allclose(np.diff(areas), np.diff(areas)[0], rtol=1e-6)


def test_area_that_is_not_known_is_none(toy_device, unit):
    silent = CHIP.replace(element_area_m2=None)
    # A constant would say that a larger array costs nothing.
    assert chip_area(toy_device.replace(matrix_unit=unit[0], chip=silent)) is None
    assert chip_area(toy_device.replace(matrix_unit=unit[0])) is None
    # The mobile NPU's tiles are no elements.
    assert chip_area(toy_device.replace(matrix_unit=catalog.device("hexagon-v75").matrix_unit, chip=CHIP)) is None
    # Without a unit the die is what the data sheet says, whatever its rates.
    assert float(area(toy_device.replace(chip=silent))) == pytest.approx(9e-5)
    npu = catalog.device("cassandra-npu-roofline")
    assert float(area(npu)) == pytest.approx(9.154e-5 + 40 * 4.4e-8)
