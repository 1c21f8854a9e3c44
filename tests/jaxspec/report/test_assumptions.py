"""What a report says of its device: true for rooflines, calibrated kernels, arrays, decoders, with and without energy."""

from pathlib import Path

import pytest
from made_results import read

from hwmodels import catalog
from hwmodels.catalog.calibrations import calibration_record
from jaxspec.report.assumptions import assumptions, device_data, device_facts, number_status


def device_text(name):
    return (Path(catalog.__file__).with_name("devices") / f"{name}.toml").read_text(encoding="utf-8")


def said(name):
    return " ".join(device_facts(name)["assumptions"])


@pytest.mark.parametrize("name", catalog.device_names())
def test_every_device_says_what_is_true_of_it(name):
    text, device = said(name), catalog.device(name)
    calibrated = catalog.device_entry(name).calibration is not None
    assert ("calibrated to measured ones" in text) == calibrated
    assert ("Time is a roofline per operator" in text) == (device.matrix_unit is None)
    assert ("decoders" in text and "a step waits for them" in text) == (device.decoder is not None)
    assert ("Energy and area of this device are not known" in text) == (device.chip is None)
    assert ("bytes per byte of the cache" in text) == (float(device.kv_traffic_factor) != 1.0)
    if float(device.compute_efficiency) != 1.0:
        assert "100 % of the dense" not in text
    # Not a sentence of another kind of device.
    if device.decoder is not None:
        assert "costs nothing" not in text


@pytest.mark.parametrize("name", catalog.device_names())
def test_fitted_numbers_are_badged_calibrated_and_others_input(name):
    data = device_facts(name)["device_data"]
    assert data
    for field, source in catalog.device_sources(name).items():
        if field in data:
            assert data[field]["status"] == ("calibrated" if source.startswith("calibrated") else "input")
    fitted = {field for field, found in data.items() if found["status"] == "calibrated"}
    if catalog.device_entry(name).calibration is not None:
        assert any(field.startswith("matrix_unit.formats.") for field in fitted)
    assert data["peak_flops_per_s"]["status"] == "input"


def test_the_error_of_the_kernels_is_that_of_what_the_fit_did_not_see():
    record = calibration_record("h100-sxm")
    halves = record["formats"]["bfloat16"]["held_out_halves"]
    text = said("h100-sxm")
    assert f"16-bit weights {100 * sum(halves) / len(halves):.2g} %" in text
    assert record["formats"]["bfloat16"]["table"] in text
    assert "another GPU" not in text
    assert "measured on another GPU, l40s" in said("rtx-4090-calibrated")


PATH = '[on_chip_path]\nbuffer_bytes_per_s = { value = 3e12, source = "s" }\n'
LINKS = 'link_bytes_per_s = { value = 2e12, source = "s" }\n'
DECODER = (
    '[decoder]\nkind = "mx"\nplace = "{place}"\nfrequency_hz = {{ value = 2e9, source = "s" }}\n'
    'symbols_per_cycle = {{ value = 3, source = "s" }}\n'
)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (DECODER.format(place="dma"), "gives no bandwidth between its memories and what multiplies ([on_chip_path])"),
        (DECODER.format(place="l2"), "where decoders sit changes no step's time by it"),
        (DECODER.format(place="array_edge"), None),
        ("", None),
        (
            PATH,
            "A buffer on the chip delivers 3 TB/s; each byte of a step passes once, and values pass both as they are",
        ),
        (PATH + LINKS, "delivers 3 TB/s, and the links behind it 2 TB/s; each"),
        (PATH + DECODER.format(place="dma"), "values pass both in 16 bits, as the decoders in the DMA leave them"),
        (PATH + DECODER.format(place="l2"), "values pass the buffer as they are stored, and the links in 16 bits"),
        (PATH + DECODER.format(place="array_edge"), "values pass both as they are stored"),
    ],
)
def test_what_the_paths_of_a_chip_take_is_told(tables, sentence, tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text(
        'title = "My chip"\n'
        'peak_flops_per_s = { value = 2e12, source = "s" }\n'
        'compute_efficiency = { value = 0.7, source = "s" }\n'
        'operator_latency_s = { value = 3e-6, source = "s" }\n'
        "[memory]\n"
        'bandwidth_bytes_per_s = { value = 1e11, source = "s" }\n'
        'efficiency = { value = 0.5, source = "s" }\n'
        'capacity_bytes = { value = 8e9, source = "s" }\n' + tables,
        encoding="utf-8",
    )
    text = said(str(path))
    assert (sentence or "") in text
    assert (sentence is not None) == ("on_chip_path" in text or "A buffer on the chip" in text)


def test_a_device_of_ones_own_speaks_for_itself(tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text(
        'title = "My chip"\n'
        'peak_flops_per_s = { value = 2e12, source = "s" }\n'
        'compute_efficiency = { value = 0.7, source = "Calibrated: on my desk" }\n'
        'operator_latency_s = { value = 3e-6, source = "assumed: like another" }\n'
        "[memory]\n"
        'bandwidth_bytes_per_s = { value = 1e11, source = "s" }\n'
        'efficiency = { value = 0.5, source = "derived: from a trace" }\n'
        'capacity_bytes = { value = 8e9, source = "s" }\n'
        "[decoder]\n"
        'kind = "unary"\nplace = "l2"\n'
        'frequency_hz = { value = 2e9, source = "s" }\n'
        'symbols_per_cycle = { value = 3, source = "s" }\n'
        'count = { value = 7, source = "s" }\n',
        encoding="utf-8",
    )
    facts = device_facts(str(path))
    assert facts["device_title"] == "My chip"
    assert facts["device_data"]["compute_efficiency"]["status"] == "calibrated"
    text = " ".join(facts["assumptions"])
    for part in (
        "70 % of the dense 16-bit rate of 2 TFLOP/s (efficiency: calibrated)",
        "50 % of 100 GB/s (efficiency: derived)",
        "3 µs (assumed)",
        "7 unary decoders between L2 cache and interconnect (3 symbols per cycle each at 2 GHz)",
        "Fitted to printed times, not to data sheets: compute_efficiency",
    ):
        assert part in text
    # The file may be gone when the page is made.
    path.unlink()
    entry = {"device": str(path), **facts}
    assert assumptions(read(entry)) == facts["assumptions"]
    assert {found.status for found in device_data(read(entry))} == {"calibrated", "input"}


def test_what_nobody_knows_is_not_invented():
    assert assumptions(read({"device": "my-board"})) == []
    assert number_status("NVIDIA data sheet, not calibrated") == "input"


def test_encoders_are_told(tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text(
        device_text("rtx-4090") + '[encoder]\nfrequency_hz = { value = 2e9, source = "s" }\n'
        'values_per_cycle = { value = 4, source = "s" }\ncount = { value = 3, source = "s" }\n',
        encoding="utf-8",
    )
    text = said(str(path))
    assert "pass 3 encoders while the step runs (4 values per cycle each at 2 GHz)" in text
    assert "encoder" not in said("rtx-4090")


def test_superblocks_are_told(tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text(
        device_text("rtx-4090") + '[superblocks]\nblocks_per_superblock = { value = 16, source = "s" }\n',
        encoding="utf-8",
    )
    assert "padded to blocks of 128 bytes and superblocks of 16 of these" in said(str(path))
    assert "superblocks" not in said("rtx-4090")
