"""Results that the README and the first page repeat are those of the recorded runs and of the pages that hold them."""

import json
import re

import pytest
from code_blocks import ROOT

from hwmodels import catalog

PAGES = ROOT / "docs" / "pages"
RESIDUALS = ROOT / "docs" / "residuals"
FIELD = json.loads((RESIDUALS / "field.json").read_text(encoding="utf-8"))["classes"]


def words(path):
    return " ".join(path.read_text(encoding="utf-8").replace("**", "").split())


README, INDEX, HARDWARE = (words(path) for path in (ROOT / "README.md", PAGES / "index.md", PAGES / "hardware.md"))


def step_rows(section):
    """Rows of all tables in a section of the page of whole steps, by column."""
    text = (PAGES / "whole-steps.md").read_text(encoding="utf-8")
    heading, found = None, []
    for line in text[text.index(f"\n## {section}\n") + 1 :].split("\n## ")[0].splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heading = None
        elif heading is None:
            heading = cells
        elif not re.fullmatch(r"[|:\- ]+", line):
            found.append(dict(zip(heading, cells, strict=True)))
    return found


def means(section, **where):
    """Mean errors in percent of those rows, from the smallest."""
    rows = [row for row in step_rows(section) if "mean" in row and where.items() <= row.items()]
    return sorted(float(row["mean"].removesuffix(" %")) for row in rows)


def test_errors_of_published_speedups():
    for words, name in (
        ("One GPU of a data center", "GPUs of data centers"),
        ("The same for several GPUs", "several GPUs"),
        ("The same for consumer NVIDIA, DGX Spark, Apple and AMD", "all but data centers"),
    ):
        errors = FIELD[name]["speedup"]
        percent = {key: f"{100 * errors[key]:.1f} %" for key in ("median", "p90", "largest")}
        assert (
            f"{words}: {errors['rows']} rows | median error {percent['median']}, 90 % of the errors below {percent['p90']}, "
            f"largest {percent['largest']}"
        ) in README
        if "several" not in name:
            assert f"{errors['rows']} rows is {percent['median']}" in INDEX
    assert f"the largest {100 * FIELD['all but data centers']['speedup']['largest']:.1f} %" in INDEX


def test_claims_of_the_tuned_draft_are_those_of_its_row():
    tuned = re.search(r"\| tuned, every matrix its own \|.*?\| (\S+) / (\S+ ± \S+) \| (\S+)x \|", README)
    best = re.search(r"\| best point of the uniform grid \|.*? ± \S+ \| (\S+)x \|", README)
    gain = re.search(
        r"is (\S+) times as fast as the best point of the grid \(95 % interval over prompts: (\S+) to (\S+)\)", README
    )
    assert tuned
    assert best
    assert gain
    assert f"| {tuned[1]} predicted, {tuned[2]} counted while decoding | measured |" in README
    ratio = float(tuned[3]) / float(best[1])
    assert float(gain[1]) == pytest.approx(ratio, abs=0.005 + 0.01 / float(best[1]))
    assert float(gain[2]) < float(gain[1]) < float(gain[3])


def test_widths_below_which_a_draft_waits_for_decoders():
    device = catalog.device("cassandra-npu")
    decoder, memory = device.decoder, device.memory
    assert decoder
    values_per_s = decoder.count * decoder.symbols_per_cycle * decoder.frequency_hz
    bits = 8 * memory.bandwidth_bytes_per_s * memory.efficiency / values_per_s
    assert f"`cassandra-npu`, whose {decoder.count:.0f} hardware decoders" in README
    assert f"a draft below {bits:.1f} bits per weight waits for the decoders" in README


@pytest.mark.parametrize("page", [README, INDEX])
def test_errors_of_whole_steps(page):
    dense = means("Decode", KV="16")
    narrower = means("Weights of 8 and 4 bits", phase="decode")[-1]
    mixtures = means("Large mixtures of experts", phase="decode")[-1]
    said = re.search(
        r"errors (?:of decoding are )?([\d.]+) to ([\d.]+) %; with narrower weights they reach (\d+) %", page
    )
    assert said
    assert [float(number) for number in said.groups()] == [dense[0], dense[-1], round(narrower)]
    assert f"for large mixtures of experts {mixtures:.0f} %" in page


def test_errors_of_steps_on_several_devices():
    decode, prefill = (means("Several GPUs", phase=phase) for phase in ("decode", "prefill"))
    assert (
        f"mean errors of {decode[0]} to {decode[-1]} % in decoding and {prefill[0]} to {prefill[-1]} % in prefill"
        in HARDWARE
    )


def test_errors_of_compression_figures():
    huffllm = json.loads((RESIDUALS / "huffllm.json").read_text(encoding="utf-8"))
    found = huffllm["summary"]["huffllm/compression_ratios"]["relative_error"]["predicted"]
    assert f"Huff-LLM's {found['cells']} compression figures within {100 * found['max']:.1f} %" in README
    assert len(list(RESIDUALS.glob("*.json"))) - len({"field", "gpu_steps", "host"}) == 5
    assert "Tables of five papers" in README


def test_quality_of_comparisons_is_the_same_wherever_their_page_has_it():
    """A run's table, that of problems, and the sentences between them."""
    page = (PAGES / "compare.md").read_text(encoding="utf-8")
    way, network = "| way to decode | speedup", "| network | sums right"
    run, problems = (
        {
            cells[0].strip("| `"): cells
            for cells in (row.split(" | ") for row in part[part.index(head) :].splitlines()[2:])
        }
        for head, part in ((head, page[: page.index("\n\n", page.index(head))]) for head in (way, network))
    )
    quality = {name: cells[-3:-1] for name, cells in run.items()}
    for name, cells in problems.items():
        shared = "autoregressive" if name == "16 bits" else name
        assert [cell.strip(" |") for cell in cells[-2:]] == quality[shared], name
    bits, agreement = ({name: row[i] for name, row in quality.items()} for i in (0, 1))
    plain, cache = agreement["rotated-w4a4"], agreement["rotated-w4a4kv4"]
    said = words(PAGES / "compare.md")
    assert f"the agreement falls from {plain} to {cache}" in said
    assert f"{bits['duquant-w4a4']} bits per byte instead of the plain rotation's {bits['rotated-w4a4']}" in said
    assert f"`int4-channel`, the same bits with 16-bit activations, has {bits['int4-channel']}" in said


def test_the_headline_says_how_ideal_its_device_is():
    ideal = catalog.device("rtx-4090")
    assert (ideal.compute_efficiency, ideal.memory.efficiency, ideal.operator_latency_s) == (1.0, 1.0, 0.0)
    assert (
        "`rtx-4090` runs at its data sheet's rates: efficiency 1, no time of launches. On `rtx-4090-calibrated`"
        in README
    )
    assert catalog.device("rtx-4090-calibrated").matrix_unit is not None


def test_the_first_screen_says_that_real_networks_accept_less():
    first = README[: README.index("pip install")]
    assert "accepts more than real networks do" in first
    assert "[on real networks](docs/pages/real-networks.md)" in first
