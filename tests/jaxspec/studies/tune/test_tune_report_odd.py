"""Report pages of odd entries: several devices, absent keys, markup, failed writes."""

import math
import os
import xml.etree.ElementTree as ET

import pytest
from made_results import read
from tune_report_samples import parse, report_html, table_rows, words

from jaxspec.report.page import drawn
from jaxspec.studies.tune import view

pytestmark = pytest.mark.study


def write_report(entries, *more, **options):
    return view.write_report([read(entry) for entry in entries], *more, **options)


def test_own_command_is_shown_escaped(make_entry, text_only):
    page = report_html([make_entry()], [], command="jaxspec tune --text 'a & b'")
    assert "jaxspec tune --text 'a & b'" in words(parse(page))


def test_what_the_entry_says_cannot_become_markup(make_entry):
    entry = make_entry() | {"text": "<script>alert(1)</script>", "device": 'a <b> "c"'}
    page = report_html([entry], [])
    assert "<script" not in page
    assert "<script>alert(1)</script>" in words(parse(page))


def test_several_devices(make_entry, make_metrics, tmp_path):
    entries = [
        make_entry(),
        make_entry(device="jetson-agx-orin", layers=5, pays=False),
        make_entry(device="rtx-4090", architecture="qwen3-4b"),
    ]
    path = write_report(entries, make_metrics() + make_metrics("jetson-agx-orin"), tmp_path)
    root = parse(path.read_text(encoding="utf-8"))
    summary = root.find(".//table[@class='numbers']")
    rows = [[words(cell) for cell in row] for row in summary.find("tbody")]
    assert rows[0] == [
        "NVIDIA GeForce RTX 4090",
        "2.33x predicted",
        "1.96x predicted",
        "1.14x predicted 1.11 to 1.16",
        "1.21x predicted 1.18 to 1.24",
        "tuned",
    ]
    assert rows[1][0] == "NVIDIA Jetson AGX Orin 64GB"
    assert rows[1][-1] == "none"
    links = [found.attrib["href"] for found in summary.findall(".//a")]
    assert links == ["#rtx-4090", "#jetson-agx-orin", "#rtx-4090-2"]
    assert [found.attrib["id"] for found in root.findall(".//section/h2")] == [link[1:] for link in links]
    headlines = [(found.attrib["class"], words(found)) for found in root.findall("./body/header/p")][:3]
    assert headlines[1][0] == "headline none"
    assert "no draft pays here" in headlines[1][1]
    assert "plain decoding of a stored format reaches 1.17x" in headlines[1][1]
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 18


def test_no_draft_pays_marks_no_column_as_fastest(make_entry, text_only):
    page = report_html([make_entry(pays=False)], [])
    assert "(fastest)" not in page
    assert "(fastest)" in report_html([make_entry()], [])


def test_the_runs_own_configuration_is_shown(make_entry, text_only, tmp_path):
    (tmp_path / "config.toml").write_text("seed = 4711\n", encoding="utf-8")
    assert "seed = 4711" in write_report([make_entry()], [], tmp_path).read_text(encoding="utf-8")
    given = write_report([make_entry()], [], tmp_path, config_toml="seed = 4712").read_text(encoding="utf-8")
    assert "seed = 4711" not in given
    assert "seed = 4712" in given


def test_files_are_whole_and_nothing_else_is_left(make_entry, make_metrics, tmp_path):
    out = tmp_path / "new" / "run"
    assert write_report([make_entry()], make_metrics(), out) == out / "report.html"
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    names = ("acceptance", "convergence", "knobs", "operator_time", "roofline", "tokens")
    assert found == [f"figures/rtx-4090-{name}.svg" for name in names] + ["report.html"]
    for name in names:
        ET.parse(out / "figures" / f"rtx-4090-{name}.svg")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    write_report([make_entry()], make_metrics(), out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_failed_write_leaves_the_old_file(make_entry, text_only, tmp_path, monkeypatch):
    write_report([make_entry()], [], tmp_path)
    old = (tmp_path / "report.html").read_bytes()

    def fail(source, target):
        raise OSError("disk is gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk is gone"):
        write_report([make_entry(pays=False)], [], tmp_path)
    assert (tmp_path / "report.html").read_bytes() == old
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("missing", [None, math.nan])
def test_null_and_nan_are_shown_as_unknown(make_entry, make_metrics, monkeypatch, missing):
    entry = make_entry()
    tuned = entry["configurations"]["tuned"]
    tuned["acceptance"]["alpha_token"] = tuned["speedup_vs_stored_ar"] = tuned["bits_per_kv"] = missing
    assert len(drawn(view.drawings(read(entry), make_metrics()))) == 6
    monkeypatch.setattr(view, "drawings", lambda entry, metrics: {})
    page = report_html([entry], [])
    rows = table_rows(parse(page))
    assert (
        rows["alpha_token"][-1] == rows["speedup vs stored AR"][-1] == rows["bits per KV element, draft"][-1] == "n/a"
    )
    assert rows["alpha_fraction"][-1] == "0.814 measured"
    assert "nan" not in words(parse(page)).lower()


@pytest.mark.parametrize(
    "key",
    [
        "model",
        "architecture",
        "device",
        "workload",
        "decoding",
        "text",
        "grid",
        "ratios",
        "lossless",
        "timing_s",
        "versions",
    ],
)
@pytest.mark.parametrize("null", [False, True])
def test_any_key_may_be_absent_or_null(make_entry, make_metrics, monkeypatch, key, null):
    entry = make_entry()
    del entry[key]
    entry |= {key: None} if null else {}
    found = drawn(view.drawings(read(entry), make_metrics()))
    lost = {"device": {"convergence", "roofline"}}.get(key, set())
    assert set(found) == {"acceptance", "knobs", "convergence", "tokens", "roofline", "operator_time"} - lost
    monkeypatch.setattr(view, "drawings", lambda entry, metrics: {})
    assert "2.33x" in words(parse(report_html([entry], [])))


def test_next_to_nothing_is_still_a_page():
    assert "This result holds no configuration." in words(parse(report_html([{}], [])))
    assert "No device was asked about." in words(parse(report_html([], [])))
    partial = {"configurations": {"tuned": {"speedup_vs_bf16_ar": 1.5}}}
    rows = table_rows(parse(report_html([partial], [])))
    assert rows["speedup vs bf16 AR"] == ["1.50x no status"]
    assert rows["alpha_token"] == ["n/a"]
