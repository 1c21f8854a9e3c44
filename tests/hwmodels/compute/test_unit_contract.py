"""What every compute unit keeps to, whichever it is: the registry is the list, and the roofline is the default."""

import tomllib
from pathlib import Path

import pytest
from narrow_devices import kernels_of_16_bits

from hwmodels import catalog
from hwmodels.catalog.units import UNITS
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost
from hwmodels.compute.roofline import RowCosts
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import VectorArray
from jaxspec.testing import units
from jaxspec.testing.units import SMALL

BUFFERS = (OnChipBuffer(1e12, 4.0, 3e-12), OnChipBuffer(2e12, 8.0, 5e-12), OnChipBuffer(3e12, 2.0, 2e-12))
#: Two formats; a step from one row to two, and another of eight rows.
HOST = MeasuredHost(
    formats=(HostProducts(3e-6, 0.4, 0.5, 0.2), HostProducts(2e-6, 0.7, 0.8, 0.3)),
    weight_widths=(11.0, 32.0),
    row_costs=(None, RowCosts((1e5, 1e7), (1.0, 2.0, 7.0, 8.0), ((0.5, 1.0, 1.0, 1.1), (0.6, 0.9, 1.2, 1.3)))),
    cache_bytes=3e7,
    cache_sharpness=2.0,
    attention=HostAttention(5e-6, 1e-7, 2e-9, 0.3, 0.4),
    between=Between(3e-5, 1e-7, 4e-6, 1e-9, 2e-6, 3e-9),
)


def first_devices():
    """Kind of matrix unit -> the catalog's first device that has it."""
    found = {}
    for name in catalog.device_names():
        file = Path(catalog.__file__).with_name("devices") / f"{name}.toml"
        if unit := tomllib.loads(file.read_text(encoding="utf-8")).get("matrix_unit"):
            found.setdefault(unit["kind"], catalog.device(name))
    return found


#: Kind -> a device that computes with it: a small one, or else the catalog's.
DEVICES = {
    **first_devices(),
    "roofline": SMALL,
    "systolic_array": SMALL.replace(matrix_unit=SystolicUnit(12.0, 10.0, 1e9, 7e-13, *BUFFERS)),
    "vector_array": SMALL.replace(matrix_unit=VectorArray(3.0, 5.0, 6.0, 7.0, 2e9)),
    "measured_host": SMALL.replace(matrix_unit=HOST),
}


@pytest.fixture(scope="module", params=DEVICES)
def whole(request):
    return DEVICES[request.param]


@pytest.fixture(scope="module")
def device(whole):
    """With one kernel of products where there is one for each width: they are alike, and each takes long to compile."""
    return kernels_of_16_bits(whole) if isinstance(whole.matrix_unit, CalibratedGpu) else whole


def test_every_registered_kind_is_here():
    assert DEVICES.keys() == {*UNITS, "roofline"}


def test_it_says_what_it_is(whole):
    units.says_what_it_is(whole)


def test_kernels_share_an_operator(whole):
    units.shares_operators(whole)


def test_times_shares_and_energies_are_in_their_ranges(device):
    units.stays_in_range(device)


@pytest.mark.device_matrix("roofline", "systolic_array", "calibrated_gpu")
def test_energy_is_known_where_there_is_a_chip(device):
    units.knows_energy_of_chips(device)


@pytest.mark.device_matrix("roofline", "systolic_array", "calibrated_gpu", "measured_host")
def test_more_work_never_takes_less(device):
    units.takes_no_less_for_more(device)


def test_new_values_are_not_traced_again(device):
    units.traces_once(device)


@pytest.mark.device_matrix("roofline", "systolic_array", "measured_host")
def test_a_batch_of_devices_and_works_is_what_each_of_them_gives(device):
    units.maps(device)


@pytest.mark.device_matrix("roofline", "systolic_array", "vector_array")
def test_gradient(device):
    units.has_right_gradients(device)
