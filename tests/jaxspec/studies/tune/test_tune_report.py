import re

import pytest
from tune_report_samples import parse, report_html, table_rows, words

from jaxspec.report.assumptions import device_facts
from jaxspec.report.page import COLUMNS_ACROSS


@pytest.mark.study
def test_page_is_well_formed_and_asks_nobody_for_anything(page):
    root = parse(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "http://" not in page
    assert "https://" not in page
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "iframe", "img", "object", "embed", "base"}
    targets = [v for e in root.iter() for k, v in e.attrib.items() if k in ("href", "src")]
    assert targets
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    policy = root.find(".//meta[@http-equiv='Content-Security-Policy']")
    assert policy.attrib["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.mark.study
def test_page_suits_dark_screens_and_paper(page):
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page


@pytest.mark.study
def test_headline_and_provenance(page):
    root = parse(page)
    headline = root.find(".//p[@class='headline']")
    assert "the tuned draft is predicted to decode 2.33x as fast as 16-bit autoregressive decoding" in words(headline)
    assert "1.14x (1.11 to 1.16) the speed of the best grid point" in words(headline)
    assert "Acceptance measured on embedded (3.08 M parameters), cost predicted for Llama 3.1 8B on NVIDIA" in page


@pytest.mark.study
def test_every_number_of_the_table_stands_beside_its_status(page):
    assert table_rows(parse(page)) == {
        "speedup vs bf16 AR": [f"{x} predicted" for x in ("1.93x", "2.04x", "2.09x", "2.33x")],
        "speedup vs stored AR": [f"{x} predicted" for x in ("1.69x", "1.75x", "1.77x", "1.96x")],
        "alpha_token": [f"{x} measured" for x in ("0.952", "0.931", "0.935", "0.948")],
        "alpha_fraction": [f"{x} measured" for x in ("0.851", "0.796", "0.778", "0.814")],
        "bits per weight, draft": [f"{x} measured" for x in ("5.11", "4.22", "4.13", "3.64")],
        "bits per weight, verification": [f"{x} measured" for x in ("13.91", "13.52", "13.43", "13.34")],
        "KL to the target": [f"{x} measured" for x in ("0.0391", "0.0310", "0.0302", "0.0254")],
        "bits per KV element, draft": [f"{x} measured" for x in ("9.93", "8.04", "7.55", "6.86")],
        "draft length": ["5", "4", "6", "7"],
        "tokens per cycle, predicted": [f"{x} predicted" for x in ("5.26", "4.98", "5.67", "5.89")],
        "tokens per cycle, counted": [
            f"{x} measured" for x in ("5.21 ± 0.06", "4.95 ± 0.07", "5.64 ± 0.08", "5.84 ± 0.09")
        ],
        "gap between the two": [f"{x} measured" for x in ("0.8", "0.4", "0.4", "0.5")],
        "weights": ["40 % pruned, 4 bits cut"] * 3 + ["10 to 55 % pruned, 0 to 7 bits cut"],
        "keys and values": ["5 % pruned, 1 bit cut"] * 4,
    }


def test_badges_are_coloured_by_status(make_entry, text_only):
    entry = make_entry()
    entry["configurations"]["grid"]["status"]["speedup_vs_bf16_ar"] = "calibrated"
    entry["configurations"]["tuned"]["status"] = {}
    root = parse(report_html([entry], []))
    table = root.find(".//table[@class='numbers configurations']")
    badges = [(b.attrib["class"], b.text) for b in table.findall(".//span")]
    assert badges[:4] == [
        ("badge predicted", "predicted"),
        ("badge calibrated", "calibrated"),
        ("badge predicted", "predicted"),
        ("badge none", "no status"),
    ]


def test_lossless_line(make_entry, text_only):
    entry = make_entry()
    said = words(parse(report_html([entry], [])).find(".//p[@class='proof holds']"))
    assert said == (
        "Lossless: speculative and autoregressive output agree in all 6144 tokens of 96 prompts, 0 mismatches, 1 tie; "
        "smallest margin between the two best tokens 0.0013. measured"
    )
    entry["lossless"] = {"prompts": 96, "tokens": 6144, "mismatches": 3}
    said = words(parse(report_html([entry], [])).find(".//p[@class='proof broken']"))
    assert said.startswith("NOT lossless: 3 of 6144 tokens of 96 prompts differ")
    del entry["lossless"]
    said = words(parse(report_html([entry], [])).find(".//p[@class='proof unknown']"))
    assert said == "Lossless: not checked in this run."


def test_a_large_gap_is_called_a_defect(make_entry, text_only):
    entry = make_entry()
    entry["configurations"]["uniform"]["tokens_per_cycle_gap_in_standard_errors"] = 3.2
    assert table_rows(parse(report_html([entry], [])))["gap between the two"][2] == "3.2 measured defect"


def test_a_ratio_that_may_be_one_is_said_to_be_unclear(page):
    assert "tuned vs uniform 1.02x (0.98 to 1.05)" in words(parse(page))
    assert page.count("no clear difference: the interval contains 1") == 1


def test_device_data_with_sources(page):
    text = words(parse(page))
    assert "peak_flops_per_s 165.2 TFLOP/s input NVIDIA Ada GPU architecture whitepaper" in text
    assert "memory.efficiency 1 input assumed: data-sheet roofline, not calibrated" in text


def test_settings_assumptions_versions_and_command(page):
    text = words(parse(page))
    for part in (
        "seed 17",
        "workload batch 1, context tokens 1024",
        "decoding temperature 0, prompts 96, prompt tokens 128, output tokens 64",
        "scheme cassandra1",
        "text held-out text",
        "time of this run ascent 201.5 s, grid 81.2 s measured",
        "Whether the priced architecture, compressed alike, would reach the same acceptance is not known.",
        "jaxspec tune --config config.toml",
        'model = "embedded" # a < b',
        "Versions: jax 0.10.0, python 3.11.9.",
    ):
        assert part in text


@pytest.mark.study
def test_the_assumptions_are_those_of_the_devices_that_were_used(make_entry, text_only):
    names = ("rtx-4090", "h100-sxm", "cassandra-npu", "alveo-v80")
    for chosen in (names[:1], names[1:2], names):
        text = words(parse(report_html([make_entry(device=name) for name in chosen], [])))
        for name in names:
            for sentence in device_facts(name)["assumptions"]:
                others = [s for other in chosen for s in device_facts(other)["assumptions"]]
                assert (sentence in text) == (sentence in others), (name, sentence)
    assert "what its times assume is not part of the result" in words(
        parse(report_html([make_entry(device="my-board")], []))
    )


def test_numbers_of_a_calibrated_device_are_badged_calibrated(make_entry, text_only):
    root = parse(report_html([make_entry(device="h100-sxm")], []))
    rows = [[words(cell) for cell in row] for row in root.find(".//table[@class='data']/tbody")]
    badges = {row[0]: row[1].rpartition(" ")[2] for row in rows}
    assert badges["matrix_unit.formats.0.launch_s"] == badges["matrix_unit.attention.0.ramp"] == "calibrated"
    assert badges["peak_flops_per_s"] == badges["memory.bandwidth_bytes_per_s"] == "input"


def test_wide_tables_are_divided_with_nothing_lost(make_entry, text_only):
    entry = make_entry()
    shown = entry["configurations"]
    for i in range(11):
        shown[f"own {i}"] = shown["tuned"] | {"bits_per_weight": 3.0 + i}
    root = parse(report_html([entry, make_entry()], []))
    for table in root.iter("table"):
        across = {len(row) for row in table.iter("tr")}
        assert len(across) == 1
        assert across.pop() <= 1 + COLUMNS_ACROSS
    parts = root.find(".//section").findall(".//table[@class='numbers configurations']")
    headings = [th.text for part in parts for th in part.findall("thead/tr/th")[1:]]
    assert [name.removesuffix(" (fastest)") for name in headings] == list(shown)
    bits = [
        words(cell)
        for part in parts
        for row in part.findall("tbody/tr")
        if row.find("th").text == "bits per weight, draft"
        for cell in row.findall("td")
    ]
    assert bits == [f"{found['bits_per_weight']:.2f} measured" for found in shown.values()]
    scrolling = {table for div in root.findall(".//div[@class='scroll']") for table in div.iter("table")}
    assert scrolling == set(root.iter("table"))


def test_one_device_needs_no_summary(page):
    assert "All devices" not in page
