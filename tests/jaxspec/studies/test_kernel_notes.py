"""What results and terminal say of widths without a measured kernel."""

from types import SimpleNamespace

from hwmodels import LAYER_MATRICES, catalog, uniform_footprint, uniform_weight_bits
from jaxspec.report.terminal import note_lines
from jaxspec.studies.feasibility import kernel_notes


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
