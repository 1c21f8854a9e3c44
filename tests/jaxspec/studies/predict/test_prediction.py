"""`jaxspec predict` as a function: every part of an entry against the hardware models, and its tables and figure."""

import copy
import importlib
import itertools
import types
from pathlib import Path

import numpy as np
import pytest
from what_is_shown import all_is_shown, numbers_are_whole

import hwmodels
from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.results import Quantity
from jaxspec.studies import predict
from jaxspec.studies.predict import run as predict_run
from jaxspec.studies.predict.figures import prediction_figure
from jaxspec.studies.predict.result import PredictResult
from jaxspec.studies.predict.view import prediction_tables


def device_text(name):
    return (Path(catalog.__file__).with_name("devices") / f"{name}.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def entry():
    (found,) = predict(
        architecture="llama-3.2-1b",
        device="cassandra-npu",
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


def figure_of(entries):
    return prediction_figure([PredictResult.from_plain(entry) for entry in entries])


def test_steps_are_those_of_the_hardware_models(entry):
    device, shape = catalog.device("cassandra-npu"), catalog.architecture("llama-3.2-1b")
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


def test_decoders_needed_by_a_step(entry):
    # The memory brings 273 GB/s of values at the draft's width; a unit puts out 12.8 of them per nanosecond.
    bits = min(entry["footprint"]["draft_bits"], entry["footprint"]["draft_kv_bits"])
    assert entry["decoders"]["count"] == 40
    needed = 273e9 * 8 / bits / 12.8e9
    # Activations come with the weights, so that a little less is decoded.
    assert 0.9 * needed < entry["decoders"]["needed_by_draft"] <= needed + 1
    assert entry["decoders"]["needed_by_verify"] < entry["decoders"]["needed_by_draft"]


def test_sensitivities_are_slopes(entry):
    found = entry["sensitivity"]["tokens_per_s"]
    device = catalog.device("cassandra-npu")
    from hwmodels.analysis.sensitivity import leaf_names

    assert set(found) <= set(leaf_names(device))
    # Decoding is bound by the memory: rates add up to one, and one percent of bandwidth is one percent of speed.
    assert found["memory.bandwidth_bytes_per_s"] == pytest.approx(1, abs=0.02)
    energy = entry["sensitivity"]["energy_per_token_j"]
    assert energy["memory.energy_j_per_bit"] > 0.5


def test_speculation_pays_less_in_larger_batches(entry):
    speedups = [row["speedup_vs_stored_ar"] for row in entry["by_batch"]]
    assert all(a >= b - 1e-6 for a, b in itertools.pairwise(speedups))
    assert min(speedups) >= 1  # not to speculate is one of the choices


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


def test_one_network_in_sixteen_bits_is_held_in_one_way():
    # Stages hold embedding and head each: as stored in 16 bits and uncompressed are the same.
    group = {"pipeline": 3, "link": "pcie4"}
    common = {"architecture": "llama-3.2-1b", "device": "rtx-4090", "batch": 7, "context": 900, "scheme": "bf16"}
    for more in ({}, group, group | {"tensor_parallel": 2, "data_parallel": 2}):
        (found,) = predict(**common, **more)
        assert found.ar_bf16_held_bytes.known == found.held_bytes.known
        assert found.ar_bf16_fits.known == found.fits.known


def test_tables_and_figure_show_it(entry):
    one = tables_of([entry | {"draft_length": 1}])[0]
    assert str(one.title).endswith("best: 1 drafted token")
    titles = [str(table.title) for table in tables_of([entry])]
    assert len(titles) == 5
    assert "best:" in titles[0]
    figure = figure_of([entry, entry])
    assert figure is not None
    drawn = [axes for part in figure.subfigs for axes in part.axes]
    assert len(drawn) == 8
    heights = [line.get_ydata() for line in drawn[0].lines if len(line.get_ydata()) == 4]
    np.testing.assert_allclose(heights[0], [row["speedup_vs_bf16_ar"] for row in entry["by_draft_length"]])


def scaled(entry, *, speedup=1.0, time=1.0, **more):
    """A prediction of another size: its speedups and times multiplied."""
    found = copy.deepcopy(entry) | more
    for row in (*found["by_draft_length"], *found["by_batch"]):
        row["speedup_vs_bf16_ar"] *= speedup
        row["speedup_vs_stored_ar"] *= speedup
    for operators in found["operators"].values():
        for name in operators:
            operators[name] *= time
    return found


def stored_is_faster(entry):
    """The series over stored AR above the one over 16-bit AR."""
    found = copy.deepcopy(entry)
    for row in (*found["by_draft_length"], *found["by_batch"]):
        row["speedup_vs_stored_ar"] = 3 * row["speedup_vs_bf16_ar"]
    return found


def odd_predictions(entry):
    """As they come, and at the ends: tiny, huge, one point, none that pays, sizes that do not fit, long names."""
    one = scaled(entry, draft_length=0, pays=False)
    one |= {"by_draft_length": one["by_draft_length"][:1], "by_batch": one["by_batch"][:1]}
    zero = scaled(entry, speedup=0.0, time=0.0)
    zero["sensitivity"] = {metric: {} for metric in zero["sensitivity"]}
    full = scaled(entry, fits=False, ar_bf16_fits=False, lossless=False)
    full["by_batch"] = [row | {"fits": False} for row in full["by_batch"]]
    leaves = {f"matrix_unit.formats.{i}.a_name_of_a_number_that_is_long": (-0.3) ** i for i in range(12)}
    long = scaled(entry, device="/a/very/long/path/to/" + "x" * 130 + ".toml", scheme="cassandra1-coded")
    long["sensitivity"] = dict.fromkeys(long["sensitivity"], leaves)
    return {
        "as it is": [entry],
        "tiny": [scaled(entry, speedup=1e-7, time=1e-9)],
        "huge": [scaled(entry, speedup=1e7, time=1e9)],
        "stored is faster": [stored_is_faster(entry)],
        "one point, none pays": [one],
        "zero": [zero],
        "does not fit": [full],
        "long names": [long],
        "four devices": [entry, one, full, long],
    }


CASES = tuple(odd_predictions({"by_draft_length": [], "by_batch": [], "operators": {}, "sensitivity": {}}))


@pytest.mark.parametrize("case", CASES)
def test_all_data_lies_within_the_axes_and_all_text_on_the_canvas(entry, case):
    all_is_shown(figure_of(odd_predictions(entry)[case]))


@pytest.mark.parametrize("case", CASES)
def test_no_table_cuts_a_number_at_any_width(entry, case):
    for table in tables_of(odd_predictions(entry)[case]):
        numbers_are_whole(table)


def test_every_number_has_a_true_status(entry):
    status = entry["status"]
    assert status["acceptance"] == status["workload"] == status["capacity_bytes"] == status["area_m2"] == "input"
    assert status["everything else"] == "predicted"
    assert set(status["footprint"].values()) == {"predicted"}
    assert "40 unary decoders" in " ".join(entry["assumptions"])


def test_a_place_on_the_chip_shows_where_decoded_values_do_not_fit_through(tmp_path):
    """A GPU with decoders behind its L2 cache: the links decide, and decoders need not be faster than these."""
    text = device_text("rtx-4090") + (
        '[decoder]\nkind = "mx"\nplace = "PLACE"\nfrequency_hz = { value = 1e9, source = "s" }\n'
        'symbols_per_cycle = { value = 10, source = "s" }\ncount = { value = 500, source = "s" }\n'
        '[on_chip_path]\nbuffer_bytes_per_s = { value = 2e12, source = "s" }\n'
    )
    found = {}
    for place in ("l2", "array_edge"):
        path = tmp_path / f"{place}.toml"
        path.write_text(text.replace("PLACE", place), encoding="utf-8")
        # 3 bits of a weight at 1008 GB/s are 5.4 TB/s decoded; the head, in 16 bits, waits for the memory.
        (found[place],) = predict(
            architecture="llama-3.2-1b", device=str(path), acceptance="0.9", draft_bits=3, verify_bits=12
        )
    behind, edge = found["l2"].plain(), found["array_edge"].plain()
    steps = {name: entry["steps"]["draft"] for name, entry in (("l2", behind), ("edge", edge))}
    assert steps["l2"]["on_chip_s"] > 1.3 * steps["l2"]["memory_s"]
    assert steps["l2"]["total_s"] > 1.3 * steps["edge"]["total_s"]
    assert steps["edge"]["on_chip_s"] < steps["edge"]["memory_s"]
    # 2 TB/s are 1000 values per nanosecond, 100 units; behind memory alone 5.4 TB/s, 270.
    assert behind["decoders"]["needed_by_draft"] == pytest.approx(100, abs=2)
    assert edge["decoders"]["needed_by_draft"] == pytest.approx(269, rel=0.1)
    assert "on chip" in headings(tables_of([behind]))
    (usual,) = predict(architecture="llama-3.2-1b", device="rtx-4090", acceptance="0.9", draft_bits=3, verify_bits=12)
    assert "on chip" not in headings(prediction_tables([usual]))


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


def test_a_device_without_energy_says_so():
    (result,) = predict(architecture="llama-3.2-1b", device="rtx-4090", acceptance="0.5", draft_bits=5, verify_bits=14)
    found = result.plain()
    assert found["energy_per_token_j"] is None
    assert found["steps"]["draft"]["energy_j"] is None
    assert "energy_per_token_j" not in found["sensitivity"]
    widths = {
        "draft_bits": "input",
        "verify_bits": "input",
        "draft_kv_bits": "predicted",
        "verify_kv_bits": "predicted",
    }
    assert found["status"]["footprint"] == widths
    assert (found["footprint"]["draft_bits"], found["scheme"]) == (5, "cassandra1")
    assert found["area_m2"] is None
    assert found["decoders"] is None


@pytest.mark.parametrize("moment", ["loaded", "priced"])
def test_a_device_that_is_replaced_meanwhile_is_not_recorded(tmp_path, monkeypatch, moment):
    """Neither between its loading and its digest, nor between its digest and the look for its title and sources."""
    file = tmp_path / "mine.toml"
    file.write_text(device_text("rtx-4090"))

    def swap(*_):
        file.write_text(device_text("l40s"))

    run = importlib.import_module("jaxspec.studies.predict.run")  # the package's `predict` is the function
    if moment == "loaded":
        widths = run.read_widths
        monkeypatch.setattr(run, "read_widths", lambda *given: (widths(*given), swap())[0])
    monkeypatch.setattr(run, "_price", swap if moment == "priced" else pytest.fail)
    monkeypatch.setattr(run, "_result", lambda *_: PredictResult())
    with pytest.raises(InputError, match=r"mine\.toml has changed since this command (began|took its digest)"):
        predict(device=str(file), acceptance=0.8)


def test_an_unknown_power_or_price_is_no_number(monkeypatch):
    unknown = types.SimpleNamespace(power_w=np.float32("nan"), price_usd=np.float32("nan"))
    monkeypatch.setattr(predict_run.hwmodels, "chip_bill", lambda device: unknown)
    found = predict_run._bill(types.SimpleNamespace(technology="any"))
    assert found == {"power_w": Quantity(None, "predicted"), "price_usd": Quantity(None, "predicted")}
