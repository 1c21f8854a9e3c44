"""Devices whose kernels nobody measured have those of a measured GPU, and attention that does not cut contexts."""

import dataclasses

import pytest

from hwmodels import Workload, catalog, price_steps
from hwmodels.catalog.calibrations import calibrated_names
from hwmodels.catalog.loader import _lenders
from hwmodels.network.architecture import uniform_footprint
from hwmodels.network.operators import decode_step, verify_step

WIDTHS = uniform_footprint(16.0)


def test_lenders_are_measured_and_borrowers_are_not():
    for name, lent in _lenders().items():
        assert catalog.device_entry(name).calibration is None, name
        assert lent.gpu in calibrated_names()
        assert catalog.lent_kernels(name.upper().replace("-", " ")) == lent
    assert catalog.lent_kernels("h100-sxm") is None
    assert catalog.lent_kernels("rtx-2080-ti") is None


def test_kernels_are_lent_at_the_devices_own_rates_and_say_so():
    entry, own = catalog.device_entry("rtx-3090", engine="vllm"), catalog.device("rtx-3090")
    device, unit = entry.device, entry.device.matrix_unit
    assert own.matrix_unit is None
    assert (device.peak_flops_per_s, device.memory.capacity_bytes) == (own.peak_flops_per_s, own.memory.capacity_bytes)
    assert (unit.multiprocessors, unit.lent, unit.engine) == (82.0, True, "vllm")
    assert unit.formats == catalog.device("a100-sxm-80gb", engine="vllm").matrix_unit.formats
    assert any("no kernels of vllm were measured on NVIDIA GeForce RTX 3090" in one for one in unit.measured.remarks)
    assert entry.basis == "transferred"
    assert entry.sources["matrix_unit.multiprocessors"].startswith("NVIDIA Ampere")
    # An engine with a form of its own everywhere keeps it.
    assert catalog.device("rtx-3090", engine="llama.cpp").matrix_unit is None


def seconds(device, network, *, context, tokens=1.0, batch=1.0):
    workload = Workload(batch=batch, context_tokens=context)
    if tokens == 1.0:
        step = decode_step(workload, footprint=WIDTHS)
    else:
        step = verify_step(workload, footprint=WIDTHS, verify_tokens=tokens)
    (priced,) = price_steps(device, catalog.architecture(network), [step])
    return float(priced.cost.total_s)


@pytest.mark.device_matrix
@pytest.mark.parametrize("network", ["llama-3.1-8b", "gemma-3-12b", "glm-4.7-flash"])
def test_verification_along_uncut_contexts_never_gets_cheaper(network):
    uncut = catalog.device("a100-sxm-80gb", engine="vllm")
    cut = dataclasses.replace(uncut, matrix_unit=dataclasses.replace(uncut.matrix_unit, unsplit_rows=0.0))
    alone = [seconds(device, network, context=32768.0) for device in (uncut, cut)]
    assert alone[0] == alone[1]
    for name, values in (("tokens", (1.0, 1.5, 2.0, 5.0, 9.0)), ("batch", (1.0, 3.0, 12.0))):
        given = {"tokens": 5.0, "batch": 1.0}
        found = [seconds(uncut, network, context=32768.0, **(given | {name: value})) for value in values]
        assert found == sorted(found), name
    added = [
        seconds(uncut, network, context=context, tokens=5.0) - seconds(cut, network, context=context, tokens=5.0)
        for context in (256.0, 4096.0, 65536.0)
    ]
    if network == "glm-4.7-flash":  # latent attention has kernels of its own
        assert added == [0.0, 0.0, 0.0]
    else:
        assert 0.0 <= added[0] < added[1] < added[2]
