"""The tables at the top of "Does it come true?" are those of the recorded results, misses included."""

import copy
import json

import pytest
from generated.evidence import BEGIN, END, FIELD, PAGE, summary, with_summary
from write_evidence import field_record, host_run


def test_the_page_holds_what_is_recorded():
    page = PAGE.read_text(encoding="utf-8")
    assert with_summary(page) == page
    assert [page.count(mark) for mark in (BEGIN, END)] == [1, 1]
    # On one screen, before anything else.
    assert page.index(END) < page.index("## Speedups that others published")
    shown = summary()
    assert all(f"**{name}**" in shown for name in ("The field", "The host", "The GPU", "The silicon", "The papers"))
    assert shown.count("**no**") >= 7
    assert shown.index("| GB10 |") < shown.index("| GPUs of data centers |")  # the worst first
    assert "'Apple M3 Ultra 256GB' is priced as m3-ultra" in shown


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
