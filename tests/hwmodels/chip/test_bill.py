"""Cost of whole devices: every kind of unit pays for its size."""

import chex
import jax
import numpy as np
import pytest

from hwmodels import Technology, Workload, catalog, chip_bill, decode_operators, step_cost, uniform_footprint
from hwmodels.analysis.design_point import chip_area, design_costs
from hwmodels.catalog.units import UNITS
from hwmodels.chip.bill import memory_price
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.host_and_near import HostAndNear
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import VectorArray
from hwmodels.decoders import Decoder
from hwmodels.parallel import ElementLinks

NODE = Technology(node_m=12e-9, sram_bytes=3e6)
BUFFER = OnChipBuffer(1e12, 4.0, 1e-12, capacity_bytes=3e5)
NEAR = NearMemoryUnit(5.0, 3.0, 7.0, 2.0, 1e9, links=ElementLinks(32e9, 128e9, energy_j_per_bit=1e-13))
BUFFERS = tuple(f"{name}_buffer.capacity_bytes" for name in ("input", "weight", "output"))

#: Kind of a file -> the unit, and every number that makes it larger.
SIZES = {
    "systolic_array": (SystolicUnit(12.0, 10.0, 1e9, 1e-12, BUFFER, BUFFER, BUFFER), ("rows", "columns", *BUFFERS)),
    "fpga_array": (FpgaArray(12.0, 7.0, 1e9, macs_per_pe=3.0), ("rows", "columns", "macs_per_pe")),
    "near_memory": (NEAR, ("pes", "reuse", "block_depth", "block_columns", "links.aggregation_bytes_per_s")),
    "host_and_near": (HostAndNear(NEAR, NEAR, 0.5), ("host.pes", "near.block_columns")),
    "vector_array": (VectorArray(3.0, 5.0, 2.0, 7.0, 1e9), ("pe_rows", "pe_columns", "vector_macs", "vector_width")),
    "calibrated_gpu": (catalog.device("a100-sxm-80gb").matrix_unit, ("multiprocessors",)),
    "vector_tile_kernels": (catalog.device("m3-ultra").matrix_unit, ()),
    "matrix_vector_npu": (
        catalog.device("hexagon-v75").matrix_unit,
        ("on_chip_bytes", "vector.units", "vector.register_scores"),
    ),
}


def grown(tree, dotted, factor=1.5):
    name, _, rest = dotted.partition(".")
    inner = getattr(tree, name)
    return tree.replace(**{name: grown(inner, rest, factor) if rest else inner * factor})


def device_with(toy_device, unit):
    memory = toy_device.memory.replace(energy_j_per_bit=4e-12)
    decoder = Decoder(frequency_hz=1e9, symbols_per_cycle=2.0, count=11.0, area_m2=3.6e-9, power_w=1e-3, kind="lut")
    return toy_device.replace(matrix_unit=unit, memory=memory, decoder=decoder, technology=NODE)


def test_every_kind_is_here():
    # A host is measured as it is: none of its numbers makes it larger.
    assert SIZES.keys() == UNITS.keys() - {"measured_host"}


@pytest.mark.device_matrix(3)
@pytest.mark.parametrize("kind", [None, *SIZES])
def test_more_of_anything_costs_area_and_power(toy_device, kind):
    unit, names = (None, ()) if kind is None else SIZES[kind]
    device = device_with(toy_device, unit)
    names = [f"matrix_unit.{name}" for name in names]
    by_peak = (None, "matrix_vector_npu", "calibrated_gpu", "vector_tile_kernels")
    names += ["peak_flops_per_s"] if kind in by_peak else []
    names += ["technology.sram_bytes", "decoder.count", "memory.bandwidth_bytes_per_s"]
    once = chip_bill(device)
    for name in names:
        more = chip_bill(grown(device, name))
        assert float(more.area_m2) > float(once.area_m2), name
        assert float(more.power_w) > float(once.power_w), name
        assert float(more.price_usd) > float(once.price_usd), name
    parts = ("arrays", "sram", "decoders", "interfaces", "links", "other")
    for bill in (once.area, once.power):
        assert float(bill.total) == pytest.approx(sum(float(getattr(bill, part)) for part in parts), rel=1e-6)


def test_an_array_by_hand(toy_device):
    # 12 x 10 multiply-adds at 7 nm, 0.059 of (1640 + 4184) um2 each; three buffers of 300 kB,
    # cells of 0.027 um2 on 70 % of the area.
    technology = Technology(node_m=7e-9)
    device = toy_device.replace(matrix_unit=SIZES["systolic_array"][0])
    bill = chip_bill(device, technology)
    arrays, sram = 120 * 5824e-12 * 0.059, 9e5 * 8 * 0.027e-12 / 0.7
    interfaces = 3e11 / 407.8e9 * 16.15e-6
    assert float(bill.area.arrays) == pytest.approx(arrays, rel=1e-5)
    assert float(bill.area.sram) == pytest.approx(sram, rel=1e-5)
    assert float(bill.area_m2) == pytest.approx((arrays + sram) * 1.4925 + interfaces, rel=1e-5)
    # Its own energy of a multiply-add, 1 pJ, at 1 GHz; the die's 84.6 mW per mm2.
    assert float(bill.power.arrays) == pytest.approx(0.12, rel=1e-5)
    assert float(bill.power.other) == pytest.approx(float(bill.area_m2) * 84.6e3, rel=1e-5)
    # The same numbers on an FPGA take 18 times the area.
    fpga = toy_device.replace(matrix_unit=FpgaArray(12.0, 10.0, 1e9))
    assert float(chip_bill(fpga, technology).area.arrays) == pytest.approx(18 * arrays, rel=1e-5)


@pytest.mark.device_matrix
def test_gradients_of_the_bill(toy_device, check_gradient, x64):
    device = device_with(toy_device, SIZES["systolic_array"][0])

    def of(sizes):
        rows, bandwidth, node = sizes
        changed = grown(grown(device, "matrix_unit.rows", rows), "memory.bandwidth_bytes_per_s", bandwidth)
        bill = chip_bill(changed, grown(NODE, "node_m", node))
        return 1e5 * bill.area_m2 + bill.power_w + bill.price_usd

    check_gradient(of, [1.3, 1.7, 1.1])
    sizes = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [2.0, 3.0, 0.6]])
    traced = jax.jit(jax.vmap(chex.assert_max_traces(of, n=1)))
    np.testing.assert_allclose(traced(sizes), [of(one) for one in sizes], rtol=1e-9)
    traced(sizes + 0.1)


@pytest.mark.device_matrix
def test_a_technology_gives_steps_their_energy(toy_device, small):
    unit = FpgaArray(12.0, 7.0, 1e9)
    work = decode_operators(small, Workload(batch=3.0, context_tokens=41.0), footprint=uniform_footprint(16.0))
    device = device_with(toy_device, unit).replace(decoder=None)
    flop_j = device.energy_j_per_flop
    assert flop_j is not None
    assert chip_area(device) == chip_bill(device).area_m2
    energy = step_cost(device, work).energy
    assert energy is not None
    assert float(energy.arithmetic_j.sum()) == pytest.approx(float(work.flops.sum() * flop_j), rel=1e-5)
    step_s, static_w = float(step_cost(device, work).total_s), float(chip_bill(device).power.other)
    assert float(energy.static_j) == pytest.approx(step_s * static_w, rel=1e-5)
    assert toy_device.energy_j_per_flop is None
    with pytest.raises(ValueError, match="the device has no technology; give one"):
        chip_bill(toy_device)


def test_a_memory_on_the_chip_is_sram_of_the_die(toy_device):
    technology = Technology(node_m=7e-9)
    outside = toy_device.memory.replace(capacity_bytes=3e9, bandwidth_bytes_per_s=1e11, energy_j_per_bit=4e-12)
    inside = outside.replace(capacity_bytes=5e7, bandwidth_bytes_per_s=2e12, energy_j_per_bit=1e-13, on_chip=True)
    alone = chip_bill(toy_device.replace(memory=outside), technology)
    both = chip_bill(toy_device.replace(memory=inside, spill=(outside,)), technology)
    # 50 MB of cells of 0.027 um2 on 70 % of the area; no interface, whatever its bandwidth.
    assert float(both.area.sram - alone.area.sram) == pytest.approx(5e7 * 8 * 0.027e-12 / 0.7, rel=1e-5)
    assert float(both.area.interfaces) == float(alone.area.interfaces)
    assert float(both.power.interfaces) == float(alone.power.interfaces)
    # Its own energy of a bit at its full rate.
    assert float(both.power.sram - alone.power.sram) == pytest.approx(2e12 * 8 * 1e-13, rel=1e-5)
    # Paid for with the die, not by the byte.
    assert float(memory_price(toy_device.replace(memory=inside, spill=(outside,)), technology)) == pytest.approx(
        float(memory_price(toy_device.replace(memory=outside), technology))
    )
    assert float(chip_area(toy_device.replace(memory=inside, technology=technology))) > 0
    # More of it costs both, and it takes none of a budget of bandwidth to memories outside.
    for name in ("memory.capacity_bytes", "memory.bandwidth_bytes_per_s"):
        more = chip_bill(grown(toy_device.replace(memory=inside, spill=(outside,)), name), technology)
        assert float(more.power_w) > float(both.power_w)
    costs = design_costs(toy_device.replace(memory=inside, spill=(outside,), technology=technology))
    assert float(costs.bandwidth_bytes_per_s) == pytest.approx(1e11)
