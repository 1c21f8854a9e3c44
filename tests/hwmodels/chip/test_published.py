"""Areas, energies and prices against what is printed."""

import pytest

from hwmodels.chip.bill import die_price, die_yield, dies_per_wafer
from hwmodels.chip.blocks import (
    Technology,
    bitcell_area,
    decoder_area_at,
    decoder_symbol_energy_at,
    integer_mac_area,
    integer_mac_energy,
    interface_area,
    logic_area_factor,
    mac_area,
    mac_energy,
    sram_area,
    sram_energy_per_byte,
)

NM, UM2, PJ = 1e-9, 1e-12, 1e-12


@pytest.mark.parametrize(
    ("of", "to", "printed"),
    # Rows and columns of the printed matrix that its 45 nm column does not hold; it has two digits.
    [
        (130, 7, 0.0092),
        (90, 16, 0.067),
        (65, 20, 0.14),
        (32, 7, 0.13),
        (20, 10, 0.48),
        (16, 14, 0.91),
        (180, 32, 0.025),
        (14, 7, 0.34),
    ],
)
def test_areas_scale_as_the_whole_printed_matrix(of, to, printed):
    found = logic_area_factor(to * NM) / logic_area_factor(of * NM)
    assert float(found) == pytest.approx(printed, rel=0.06)


def test_multiply_adds_at_printed_nodes():
    assert float(mac_area(45 * NM)) == pytest.approx((1640 + 4184) * UM2, rel=1e-5)
    assert float(mac_area(45 * NM, "int8")) == pytest.approx((282 + 137) * UM2, rel=1e-5)
    assert float(mac_area(7 * NM, "fp32")) == pytest.approx((7700 + 4184) * 0.059 * UM2, rel=1e-5)
    assert float(mac_energy(45 * NM)) == pytest.approx((1.1 + 0.9) * PJ, rel=1e-5)
    assert float(mac_energy(7 * NM)) == pytest.approx((0.34 + 0.38) * PJ, rel=1e-5)
    assert float(mac_energy(7 * NM, "int8")) == pytest.approx((0.07 + 0.03) * PJ, rel=1e-5)
    for size, area, older, newer in ((8, 282, 0.2, 0.07), (32, 3495, 3.1, 1.48)):
        assert float(integer_mac_area(45 * NM, size, size)) == pytest.approx((area + 137) * UM2, rel=1e-5)
        assert float(integer_mac_energy(45 * NM, size, size)) == pytest.approx((older + 0.1) * PJ, rel=1e-5)
        assert float(integer_mac_energy(7 * NM, size, size)) == pytest.approx((newer + 0.03) * PJ, rel=1e-5)


def test_a_multiply_add_of_another_paper_is_met():
    # Not used above: Cassandra's BF16 MAC unit, 64.8 mm2 at 28 nm for 32,768 multiply-adds per cycle.
    assert float(mac_area(28 * NM)) == pytest.approx(64.8e-6 / 32768, rel=0.15)


def test_on_chip_memory():
    for node, cell in ((45, 0.346), (16, 0.07), (7, 0.027), (5, 0.021), (3, 0.0199)):
        assert float(bitcell_area(node * NM)) == pytest.approx(cell * UM2, rel=1e-5)
    # TSMC N3E: 31.8 Mib/mm2 with cells of 0.021 um2, to within what the efficiency was rounded by.
    assert float(1e-6 / sram_area(5 * NM, 2**20 / 8, efficiency=0.7)) == pytest.approx(31.8, rel=0.01)
    for size, older, newer in ((8, 10, 7.5), (32, 20, 8.5), (1024, 100, 14)):
        assert float(sram_energy_per_byte(45 * NM, size * 1024)) == pytest.approx(older * PJ / 8, rel=1e-5)
        assert float(sram_energy_per_byte(7 * NM, size * 1024)) == pytest.approx(newer * PJ / 8, rel=1e-5)


def test_interfaces_and_decoders():
    # Five stacks of the A100: (10.45 + 5.7) mm2 each at 7 nm; at 16 nm only what is digital grows.
    assert float(interface_area("hbm", 7 * NM, 2039e9)) == pytest.approx(5 * 16.15e-6, rel=1e-4)
    grown = 5 * (10.45 + 5.7 * 0.19 / 0.059) * 1e-6
    assert float(interface_area("hbm", 16 * NM, 2039e9)) == pytest.approx(grown, rel=1e-4)
    assert float(40 * decoder_area_at(28 * NM, 12.8)) == pytest.approx(1.76e-6, rel=1e-5)
    assert float(40 * 12.8e9 * decoder_symbol_energy_at(28 * NM)) == pytest.approx(0.264, rel=1e-5)
    assert float(decoder_area_at(7 * NM, 12.8)) < 0.2 * 1.76e-6 / 40


def test_price_of_a_die():
    # A die of 610 mm2 at 5 nm: 70686 / 610 less 942.5 / sqrt(1220) of a wafer of 16,988 USD,
    # if all of them work. CSET prints 238.
    assert float(die_price(610e-6, Technology(node_m=5 * NM, defects_per_m2=0.0))) == pytest.approx(
        16988 / 88.9, rel=0.01
    )
    assert float(dies_per_wafer(100e-6)) == pytest.approx(706.86 - 66.64, rel=1e-4)
    assert float(die_yield(100e-6, 900.0)) == pytest.approx((1 + 0.09 / 3) ** -3, rel=1e-6)
