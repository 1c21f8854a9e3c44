"""Report pages of odd entries: several devices, absent keys, markup, failed writes."""

import math

import pytest
from made_results import read
from tune_report_samples import parse, report_html, table_rows, words

from jaxspec.report.page import drawn
from jaxspec.studies.tune import view

pytestmark = pytest.mark.study


def test_what_the_entry_says_cannot_become_markup(make_entry):
    entry = make_entry() | {"text": "<script>alert(1)</script>", "device": 'a <b> "c"'}
    page = report_html([entry], [])
    assert "<script" not in page
    assert "<script>alert(1)</script>" in words(parse(page))


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


@pytest.mark.parametrize(("key", "null"), [("device", False), ("workload", True), ("grid", False), ("timing_s", True)])
def test_any_key_may_be_absent_or_null(make_entry, make_metrics, monkeypatch, key, null):
    entry = make_entry()
    del entry[key]
    entry |= {key: None} if null else {}
    found = drawn(view.drawings(read(entry), make_metrics()))
    lost = {"device": {"convergence", "roofline"}}.get(key, set())
    assert set(found) == {"acceptance", "knobs", "convergence", "tokens", "roofline", "operator_time"} - lost
    monkeypatch.setattr(view, "drawings", lambda entry, metrics: {})
    assert "2.33x" in words(parse(report_html([entry], [])))
