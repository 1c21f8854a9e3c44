"""What results and terminal say of widths without a measured kernel."""

from types import SimpleNamespace

import numpy as np
import pytest

from hwmodels import LAYER_MATRICES, catalog, uniform_footprint, uniform_weight_bits
from hwmodels.decoders import Encoder
from jaxspec.report.shown import note_lines
from jaxspec.studies.feasibility import kernel_notes

DENSE, SPARSE = catalog.architecture("llama-3.1-8b"), catalog.architecture("qwen3-30b-a3b")


def noted(entry):
    return SimpleNamespace(device=entry.get("device"), notes=entry.get("notes", []))


def test_a_width_without_a_kernel_is_marked_in_result_and_terminal():
    footprint = uniform_footprint(16).replace(draft_weight_bits=uniform_weight_bits(4.25, LAYER_MATRICES))
    entry = {"device": "h100-sxm"} | kernel_notes(
        catalog.device("h100-sxm"), [footprint, uniform_footprint(16)], batches=[1]
    )
    assert entry["kernel_widths"] == {
        "measured": [16.0],
        "interpolated": [],
        "extrapolated": [4.25],
        "extrapolated_kv": [],
    }
    (line,) = (line for line in note_lines([noted(entry), noted(entry)]) if "extrapolated" in line)
    assert line.startswith("note on h100-sxm: extrapolated: weights of 4.25 bits have no measured kernel")


def test_all_priced_footprints_count():
    swept = uniform_footprint(16).replace(draft_weight_bits=uniform_weight_bits(np.linspace(2.5, 4.0, 7)))
    found = kernel_notes(catalog.device("a100-sxm-80gb"), [swept, uniform_footprint(np.float32(13.9))], batches=[1])
    assert found["kernel_widths"]["interpolated"] == [13.9]
    assert found["kernel_widths"]["extrapolated"] == [2.5, 2.75, 3.0, 3.25, 3.5, 3.75]
    assert any("weights of 2.5 to 3.75 bits" in note for note in found["notes"])


def plain_cache(footprint):
    return footprint.replace(draft_kv_bits=16.0, target_kv_bits=16.0)


def test_encoding_of_a_cache_is_told_to_be_free_without_encoders():
    device = catalog.device("rtx-4090")
    (note,) = kernel_notes(device, [plain_cache(uniform_footprint(4.0)), uniform_footprint(7.0)], batches=[1])["notes"]
    assert note.startswith("encoding: keys and values are read in 7 bits")
    encoder = Encoder(frequency_hz=1e9, values_per_cycle=1.0)
    assert kernel_notes(device.replace(encoder=encoder), [uniform_footprint(7.0)], batches=[1])["notes"] == []


@pytest.mark.parametrize("name", ["rtx-4090", "cassandra-npu", "alveo-v80"])
def test_devices_without_kernels_have_nothing_to_say(name):
    found = kernel_notes(catalog.device(name), [plain_cache(uniform_footprint(4.0))], batches=[1])
    assert found == {"kernel_widths": None, "notes": []}
    assert note_lines([noted({"device": name} | found), noted({})]) == []


@pytest.mark.parametrize(
    ("network", "draft", "told"), [(DENSE, None, False), (DENSE, SPARSE, True), (SPARSE, None, True)]
)
def test_fits_of_experts_are_told_where_a_network_has_some(network, draft, told):
    parts = {"batches": [1], "architecture": network, "draft": draft}
    for bits, read in ((4.0, True), (16.0, False)):
        notes = kernel_notes(catalog.device("h100-sxm"), [uniform_footprint(bits)], **parts)["notes"]
        # Nothing that is narrower than all experts.
        assert any("4-bit experts" in note for note in notes) == (told and read)
