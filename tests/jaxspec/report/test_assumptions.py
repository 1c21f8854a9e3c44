"""What a report says of its device: true for rooflines, calibrated kernels, arrays, decoders, with and without energy."""

import pytest

from hwmodels import catalog
from jaxspec.report.assumptions import device_facts


def said(name):
    return " ".join(device_facts(name)["assumptions"])


@pytest.mark.parametrize("name", catalog.device_names())
def test_every_device_says_what_is_true_of_it(name):
    text, device = said(name), catalog.device(name)
    calibrated = catalog.device_entry(name).calibration is not None
    assert ("calibrated to measured ones" in text) == calibrated
    assert ("Time is a roofline per operator" in text) == (device.matrix_unit is None)
    assert ("decoders" in text and "a step waits for them" in text) == (device.decoder is not None)
    assert ("Energy and area of this device are not known" in text) == (not device.knows_energy)
    assert ("bytes per byte of the cache" in text) == (float(device.kv_traffic_factor) != 1.0)
    if float(device.compute_efficiency) != 1.0:
        assert "100 % of the dense" not in text
    # Not a sentence of another kind of device.
    if device.decoder is not None:
        assert "costs nothing" not in text
