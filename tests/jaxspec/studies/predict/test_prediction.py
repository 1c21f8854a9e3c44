"""`jaxspec predict` as a function: every part of an entry against the hardware models, and its tables and figure."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

import hwmodels
import jaxspec as js
from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.studies import predict
from jaxspec.studies.predict import run
from jaxspec.studies.predict.result import PredictResult
from jaxspec.studies.predict.view import prediction_tables


def device_text(name):
    return (Path(catalog.__file__).with_name("devices") / f"{name}.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def entry():
    (found,) = predict(
        architecture="llama-3.2-1b",
        device="cassandra-npu-roofline",
        acceptance="0.9,0.7,0.5",
        scheme="cassandra1",
        batch=3,
        context=700,
    )
    plain = found.plain()
    assert PredictResult.from_plain(plain) == found
    return plain


def tables_of(entries):
    return prediction_tables([PredictResult.from_plain(entry) for entry in entries])


def test_steps_are_those_of_the_hardware_models(entry):
    device, shape = catalog.device("cassandra-npu-roofline"), catalog.architecture("llama-3.2-1b")
    workload = hwmodels.Workload(batch=3.0, context_tokens=700.0)
    work = hwmodels.decode_operators(shape, workload, footprint=hwmodels.uniform_footprint(16))
    step = entry["steps"]["ar_bf16"]
    assert step["total_s"] == pytest.approx(float(hwmodels.step_cost(device, work).total_s), rel=1e-5)
    assert step["flops"] == pytest.approx(float(work.flops.sum()), rel=1e-6)
    assert step["energy_j"]["total"] == pytest.approx(
        step["energy_j"]["arithmetic"] + sum(step["energy_j"]["memory"]) + step["energy_j"]["static"], rel=1e-5
    )
    assert step["energy_j"]["decoder"] == 0  # nothing is coded in 16 bits
    assert entry["steps"]["draft"]["energy_j"]["decoder"] > 0
    assert entry["steps"]["prefill"]["flops"] > 50 * step["flops"]


def test_cycle_and_energy_follow_from_the_steps(entry):
    length, steps = entry["draft_length"], entry["steps"]
    assert 0 < length <= 3
    assert entry["cycle_s"] == pytest.approx(length * steps["draft"]["total_s"] + steps["verify"]["total_s"], rel=1e-5)
    cycle_j = length * steps["draft"]["energy_j"]["total"] + steps["verify"]["energy_j"]["total"]
    assert entry["energy_per_token_j"] == pytest.approx(cycle_j / entry["tokens_per_cycle"] / 3, rel=1e-5)
    assert entry["tokens_per_cycle"] == pytest.approx(1 + np.cumprod([0.9, 0.7, 0.5])[:length].sum(), rel=1e-6)
    for row in entry["by_draft_length"]:
        assert row["speedup_vs_stored_ar"] <= entry["speedup_vs_stored_ar"] * (1 + 1e-6)


def test_sensitivities_are_slopes(entry):
    found = entry["sensitivity"]["tokens_per_s"]
    device = catalog.device("cassandra-npu-roofline")
    from hwmodels.analysis.design_point import leaf_names

    assert set(found) <= set(leaf_names(device))
    # Decoding is bound by the memory: rates add up to one, and one percent of bandwidth is one percent of speed.
    assert found["memory.bandwidth_bytes_per_s"] == pytest.approx(1, abs=0.02)
    energy = entry["sensitivity"]["energy_per_token_j"]
    assert energy["memory.energy_j_per_bit"] > 0.5


def test_memory_of_the_network_as_stored(entry):
    stored = hwmodels.parameters(catalog.architecture("llama-3.2-1b"))
    matrices = sum(stored[kind] for kind in hwmodels.LAYER_MATRICES)
    rest = sum(stored.values()) - matrices
    kv = 3 * 700 * hwmodels.kv_elements_per_token(catalog.architecture("llama-3.2-1b"))
    expected = (
        matrices * entry["footprint"]["verify_bits"] + rest * 16 + kv * entry["footprint"]["verify_kv_bits"]
    ) / 8
    assert entry["held_bytes"] == pytest.approx(expected, rel=1e-5)
    assert entry["ar_bf16_held_bytes"] == pytest.approx((matrices + rest + kv) * 2, rel=1e-6)
    assert entry["fits"]


@pytest.mark.study
def test_encoders_of_the_cache_are_priced_or_told_to_be_free(tmp_path):
    common = {"architecture": "llama-3.2-1b", "acceptance": "0.9", "draft_bits": 5, "verify_bits": 12}
    coded = common | {"draft_kv_bits": 7, "verify_kv_bits": 11}
    text = device_text("rtx-4090") + '[encoder]\nfrequency_hz = { value = 1e9, source = "s" }\n'
    found = {}
    # 16 layers with 8 heads of 64, keys and values: 16,384 values of a token, 0.8 us or 33 ms.
    for rate in (20, 5e-4):
        path = tmp_path / f"{rate}.toml"
        path.write_text(text + f'values_per_cycle = {{ value = {rate}, source = "s" }}\n', encoding="utf-8")
        (found[rate],) = predict(device=str(path), **coded)
    fast, slow = (found[rate].plain() for rate in (20, 5e-4))
    (usual,) = predict(device="rtx-4090", **coded)
    plain = usual.plain()
    assert slow["steps"]["ar_stored"]["encoding_s"] == pytest.approx(16384 / 5e5, rel=1e-5)
    assert slow["steps"]["ar_stored"]["total_s"] == pytest.approx(16384 / 5e5, rel=1e-5)
    assert slow["operators"]["ar_stored"]["kv_encoding"] > 0.9 * slow["steps"]["ar_stored"]["total_s"]
    assert slow["steps"]["draft"]["encoding_s"] == 0 == slow["steps"]["ar_bf16"]["encoding_s"]
    for step, totals in plain["steps"].items():
        assert fast["steps"][step]["total_s"] == totals["total_s"]
        assert totals["encoding_s"] is None
    assert "encode" in headings(tables_of([fast]))
    assert "encode" not in headings(tables_of([plain]))
    told = [entry for entry in (plain, fast, slow) if any("no [encoder]" in note for note in entry["notes"])]
    assert told == [plain]
    (nothing,) = predict(device="rtx-4090", **common, draft_kv_bits=16, verify_kv_bits=16)
    assert not any("[encoder]" in note for note in nothing.plain()["notes"])


def headings(tables):
    return {column.heading for table in tables for column in table.columns}


DRAFTED = {"architecture": "llama-3.2-1b", "device": "rtx-4090", "acceptance": "0.7,0.6", "context": 300}


@pytest.mark.study
@pytest.mark.parametrize("draft", ["block", "eagle3"])
def test_any_drafter_is_priced_as_its_plan_says(draft):
    (found,) = predict(draft=draft, **DRAFTED)
    shape = catalog.architecture("llama-3.2-1b")
    cost = {"block": hwmodels.block_head, "eagle3": lambda one: hwmodels.eagle_head(one, 32_000.0)}[draft](shape)
    plan = hwmodels.block_plan(2.0) if draft == "block" else hwmodels.chain_plan(2.0)
    case = hwmodels.Case(
        catalog.device("rtx-4090"), shape, hwmodels.Workload(batch=1.0, context_tokens=300.0), draft=cost
    )
    cycle = hwmodels.price(case, plan)
    row = found.by_draft_length[2]
    assert row.cycle_s.value == pytest.approx(float(cycle.total_s), rel=1e-5)
    assert found.scheme.value == "bf16"
    assert found.draft == cost.statement
    # A block runs once, whatever its length; a chain runs once for each token.
    runs = 1 if draft == "block" else found.draft_length.value
    steps = found.steps
    expected = runs * steps["draft"].total_s.value + steps["verify"].total_s.value
    assert found.cycle_s.value == pytest.approx(expected, rel=1e-5)
    own = hwmodels.held_with_draft(shape, workload=case.workload, footprint=case.footprint, draft_cost=cost)
    assert found.held_bytes.value == pytest.approx(float(own), rel=1e-5)
    assert f"drafted by {cost.statement}" in tables_of([found.plain()])[0].title


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"draft": "eagle3", "weight_prune": 0.3, "scheme": "cassandra1"}, "draft eagle3 is no copy of the target"),
        ({"draft": "ngram", "draft_bits": 8.0, "acceptance": 0.6}, "a lookup has no weights"),
        ({"draft": "mtp", "draft_tensor_parallel": 2, "tensor_parallel": 2}, "no network of its own"),
        ({"draft": "egle3"}, "eagle3"),
        ({"draft": "block"}, "no acceptance of draft 'block' is published"),
    ],
)
def test_settings_that_a_drafter_does_not_have(settings, said):
    with pytest.raises(InputError, match=said):
        predict(architecture="llama-3.2-1b", device="rtx-4090", **settings)


def test_a_lookup_has_no_draft_step():
    (found,) = predict(architecture="gpt-oss-20b", device="h100-sxm", draft="ngram", acceptance=0.5)
    assert found.steps["draft"].total_s.value == found.steps["draft"].weight_bytes.value == 0
    assert found.steps["verify"].total_s.value > 0
    lengths, steps, *_ = prediction_tables([found])
    assert "\nverification 4.63" in f"\n{lengths.caption}"
    assert re.search(r"touched: AR [0-9.]+, verification [0-9.]+$", str(steps.caption))


def test_lists_of_batch_and_context_are_single_predictions_by_one_trace(monkeypatch):
    common = {"architecture": "llama-3.2-1b", "device": "rtx-4090", "acceptance": 0.8}
    (alone,) = js.predict(**common, batch=8, context=2048).results
    traces, page = [], run.design_page
    monkeypatch.setattr(run, "design_page", lambda *given, **named: traces.append(given) or page(*given, **named))
    found = js.predict(**common, batch=np.array([32, 1, 8]), context=["2k", 512])
    assert traces == []  # those of the first prediction serve
    rows = found.to_frame()
    assert rows[["batch", "context_tokens"]].values.tolist() == [[b, c] for c in (512, 2048) for b in (1, 8, 32)]
    assert len(rows.columns) == 13
    assert found.results[4] == alone
    one = rows.iloc[4]
    assert one.token_s == pytest.approx(alone.cycle_s.value / alone.tokens_per_cycle.value, rel=1e-6)
    assert (one.speedup_vs_bf16_ar, one.bound) == (alone.speedup_vs_bf16_ar.value, "memory")
    (table,) = found.tables
    assert len(table.rows) == 6
    small = common | {"device": js.device("rtx-4090", memory_capacity_bytes=2.6e9)}
    full = js.predict(**small, batch=[1, 32], context=2048)
    assert full.to_frame().fits.tolist() == [True, False]
    for each, label in ((found, "batch"), (full, "batch (hollow: does not fit the memory)")):
        assert [axes.get_xlabel() for axes in each.plot().findobj(Axes)] == [label, label]
    assert found["RTX 4090"].results == found.results
    with pytest.raises(AttributeError, match="no attribute 'token_per_s'; did you mean 'tokens_per_s'"):
        _ = found[0].token_per_s


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": []}, "batch is []; give one or more whole numbers, separated by commas"),
        ({"batch": "1,0"}, "batch is 0; allowed is 1 to 4096"),
        ({"batch": range(1, 102), "context": range(10)}, "batch and context make 1,010 pairs; allowed are 1,000"),
    ],
)
def test_lists_that_no_prediction_takes(given, words):
    with pytest.raises(InputError, match=re.escape(words)):
        js.predict(**given)
