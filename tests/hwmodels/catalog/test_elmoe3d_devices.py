"""Devices of the ELMoE-3D paper: the numbers of its Table 1 and of its baselines, from banks, pins, elements and clocks."""

import csv
from pathlib import Path

import pytest

from hwmodels import catalog

DATA = Path(__file__).parents[1] / "data"
GB, TERA = 1e9, 1e12


def printed(table, **conditions):
    """Value of the one row of a printed table under these conditions."""
    with open(DATA / f"elmoe3d_{table}.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if conditions.items() <= row.items()]
    assert len(rows) == 1, (conditions, rows)
    return float(rows[0]["value"])


def table1(metric, component, capacity="", **conditions):
    return printed("table1_system_spec", metric=metric, component=component, hb_capacity_gb=capacity, **conditions)


@pytest.mark.parametrize("capacity", ["4", "8"])
def test_table_1_follows_from_banks_pins_elements_and_clocks(capacity):
    device = catalog.device(f"elmoe3d-hb{capacity}")
    unit, near, far = device.matrix_unit, device.memory, device.spill[0]
    banks, pes = table1("num_banks", "HB MEM", capacity), table1("num_pes", "Logic Die", capacity)
    # 1024 pins at 0.4 GHz (sec. 6) are 51.2 GB/s for each bank.
    assert near.bandwidth_bytes_per_s == banks * 1024 * 0.4e9 / 8
    assert near.bandwidth_bytes_per_s == pytest.approx(table1("bandwidth", "HB MEM", capacity) * GB, rel=1e-9)
    assert near.capacity_bytes == table1("capacity", "HB MEM", capacity) * GB
    # 8 channels of 16 bits at 6400 million transfers per second.
    assert far.bandwidth_bytes_per_s == 8 * 16 * 6400e6 / 8 == table1("bandwidth", "EXT MEM") * GB
    assert (
        far.capacity_bytes == table1("capacity", "EXT MEM") * GB == 8 * table1("capacity_per_channel", "EXT MEM") * GB
    )
    # Every bank has its element; each multiplies 16 x 32 x 32 slices of 4 bits in a cycle, so that 8 bits take two.
    assert unit.pes == pes == banks
    assert near.coupled
    assert not far.coupled
    assert unit.frequency_hz == table1("frequency", "Logic Die") * 1e9
    assert unit.elements == pes * 16 * 32 * 32
    tops = unit.peak_flops_per_s / TERA
    assert tops == pes * 16 * 32 * 32 * 2 / 1e3
    # Printed without the digits behind the point.
    assert int(tops) == table1("throughput_w4a8", "Logic Die", capacity)
    assert int(tops / 2) == table1("throughput_w8a8", "Logic Die", capacity)
    assert device.peak_flops_per_s == tops * TERA / 4
    energies = [tier.energy_j_per_bit / 1e-12 for tier in (near, far)]
    assert energies == pytest.approx([table1("read_energy", name) for name in ("HB MEM", "EXT MEM")])
    assert energies[1] / energies[0] == pytest.approx(9, rel=0.01)  # sec. 7.2
    links = unit.links
    assert links.aggregation_bytes_per_s == table1("bandwidth", "Logic Die", parameter="Aggr. Link") * GB
    assert links.streamline_bytes_per_s == table1("bandwidth", "Logic Die", parameter="Streamline Link") * GB
