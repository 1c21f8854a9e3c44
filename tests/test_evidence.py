"""The tables at the top of "Does it come true?" are those of the recorded results, misses included."""

import copy
import json
import re

import pytest
from generated.evidence import BEGIN, END, FIELD, HOST, PAGE, summary, with_summary
from write_evidence import field_record, host_run

STOPWATCH = PAGE.with_name("stopwatch.md").read_text(encoding="utf-8")


def test_the_page_holds_what_is_recorded():
    page = PAGE.read_text(encoding="utf-8")
    assert with_summary(page) == page
    assert [page.count(mark) for mark in (BEGIN, END)] == [1, 1]
    # On one screen, before anything else.
    assert page.index(END) < page.index("## Speedups that others published")
    shown = summary()
    assert all(f"**{name}**" in shown for name in ("The field", "The host", "The silicon", "The papers"))
    assert shown.count("**no**") >= 7
    assert "no architecture 'qwen3.8-27b'" in shown


@pytest.mark.parametrize("name", ["A", "B", "C", "D"])
def test_recorded_runs_are_those_of_their_page(name):
    """`docs/pages/stopwatch.md` says how each was made."""
    errors = json.loads(HOST.read_text(encoding="utf-8"))["runs"][name]["speedup"]
    tables = [block for block in STOPWATCH.split("\n\n") if block.startswith("| error of speedups")]
    (lines,) = [block.splitlines() for block in tables if f" {name}: batch 1" in block]
    place = next(at for at, cell in enumerate(lines[0].split("|")) if cell.strip().startswith(f"{name}:"))
    cells = {line.split("|")[1].strip().partition(":")[0]: line.split("|")[place] for line in lines[2:]}
    numbers = lambda row: [float(found) for found in re.findall(r"[0-9.]*[0-9]", cells[row])]
    parts = ("batch 1", "batch 16", "all")
    percent = lambda key: [pytest.approx(100 * errors[part][key]) for part in parts]
    assert numbers("median") == percent("median")
    assert numbers("90 % of the ways") == percent("p90")
    assert numbers("largest") == percent("largest")
    assert numbers("rank correlation") == [errors[part]["spearman"] for part in parts]


def test_results_are_recorded_as_they_are():
    held = json.loads(FIELD.read_text(encoding="utf-8"))
    result = {"schema_version": 1, "rows": [1], "summary": held | {"engine": "vllm"}}
    assert field_record(copy.deepcopy(result)) == held
    errors = {"median": 0.123456, "p90": 0.2, "largest": 0.3, "spearman": 0.95, "rows": 9}
    speedup = {"this model": errors, "a constant, the median of the answers": {"median": 0.4}}
    summary = {
        "largest_noise": 0.02,
        "parts": {"all": {"speedup": speedup, "covered": 0.9}, "batch 1": {"speedup": speedup, "covered": None}},
        "picked": {"batch 1": {"fastest_speedup": 1.5, "this model": {"share_of_fastest": 0.97}}},
    }
    kept = {"median": 0.1235, "p90": 0.2, "largest": 0.3, "spearman": 0.95, "constant": 0.4}
    assert host_run({"summary": summary}, "a machine") == {
        "machine": "a machine",
        "predicted": "before the clock",
        "noise": 0.02,
        "speedup": {"all": kept, "batch 1": kept},
        "picked": {"batch 1": 0.97},
        "fastest": {"batch 1": 1.5},
        "covered": {"all": 0.9, "batch 1": None},
    }


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="not found"):
        with_summary("# Another page\n")
