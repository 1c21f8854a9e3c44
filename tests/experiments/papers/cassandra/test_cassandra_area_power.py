import json
import math

import pytest

from experiments.papers.cassandra import __main__ as command
from experiments.papers.cassandra import area_power, consequences, units


@pytest.fixture(scope="module")
def result():
    return area_power.reproduce()


def cells(result, table, metric=None):
    return [row for row in result["rows"] if row["table"] == table and metric in (None, row["metric"])]


def test_every_cell_of_the_table(result):
    rows = cells(result, "table5_area_power")
    assert len(rows) == 18
    for metric in ("area", "area_ratio", "power"):
        assert len(cells(result, "table5_area_power", metric)) == 6
    for row in result["rows"]:
        error = abs(row["model_value"] - row["paper_value"]) / row["paper_value"]
        assert math.isclose(row["relative_error"], error)
    assert result["missed_bars"] == []


def test_no_cell_of_the_table_is_called_a_prediction(result):
    statuses = {
        (row["conditions"]["module"], row["metric"]): row["status"] for row in cells(result, "table5_area_power")
    }
    assert "predicted" not in statuses.values()
    # What only repeats a printed number.
    assert sum(status == "input" for status in statuses.values()) == 13
    assert statuses["Cassandra Decoder", "area"] == statuses["Cassandra Decoder", "power"] == "input"
    assert statuses["SRAM", "area_ratio"] == "input"
    (count,) = cells(result, "hardware_specs")
    assert (count["status"], count["model_value"]) == ("calibrated", 40)
    (overhead,) = cells(result, "claims")
    assert overhead["status"] == "predicted"


def test_units_and_counts():
    decoders, encoders = units.npu_decoder(), units.npu_encoder()
    assert decoders.count == 40
    # 1.76 mm^2 and 0.264 W over 40.
    assert math.isclose(decoders.area_m2, 0.044e-6)
    assert math.isclose(decoders.power_w, 0.0066)
    assert math.isclose(decoders.total_area_m2 + encoders.total_area_m2, 1.84e-6)


def test_only_five_counters_give_forty(result):
    scan = {entry["counters"]: entry for entry in result["counters"]}
    assert [n for n, entry in scan.items() if entry["decoders_in_shares"] == 40] == [5]
    # Without shares none does: the printed numbers alone fix a rate of 25.6 to 26.3 bytes, which no whole number has.
    assert all(entry["decoders_together"] != 40 for entry in scan.values())
    assert not any(1024 / 40 <= entry["decoded_bytes_per_cycle"] < 1024 / 39 for entry in scan.values())
    # By hand: 64 values per share, 40 bits over 2.85 per unit.
    assert math.ceil(64 / (40 / 2.85)) * 8 == 40


def test_one_corrected_area_explains_all_ratios(result):
    ratios = {row["conditions"]["module"]: row for row in cells(result, "table5_area_power", "area_ratio")}
    assert len(ratios) == 6
    for row in ratios.values():
        assert round(row["model_value"], 1) == row["paper_value"], row
    assert math.isclose(sum(row["model_value"] for row in ratios.values()), 100)
    summary = result["summary"]["cassandra/table5_area_power"]
    # s / (s + 69.28) = 0.248
    assert math.isclose(summary["fitted"]["SRAM area, mm^2"], 69.28 * 0.248 / 0.752)
    assert summary["compared"]["cells"] == summary["compared"]["rounded"] == 5
    assert summary["beats_simplest"]
    printed_sum = summary["simplest_predictors"]["printed area over the sum of printed areas"]
    assert summary["compared"]["median"] < printed_sum["median"] / 2


def test_the_summary_says_what_tests_nothing(result):
    count = result["summary"]["cassandra/hardware_specs"]
    assert not count["tested"]
    assert not count["beats_simplest"]
    # The paper's own ratios already sum to the claimed 2 %.
    overhead = result["summary"]["cassandra/claims"]
    assert overhead["simplest_predictors"]["sum of the printed ratios"]["max"] < 1e-9
    assert not overhead["beats_simplest"]


def test_overhead_of_about_two_percent(result):
    shares = result["shares"]
    assert math.isclose(shares["sum of printed areas, mm^2"], 93.38)
    assert math.isclose(shares["area, of printed areas"], 100 * 1.84 / 93.38)
    for name, value in shares.items():
        if name.startswith("area"):
            assert 1.95 < value < 2.05, name
    # 0.281 of 15.527 W.
    assert math.isclose(shares["power, of printed powers"], 100 * 0.281 / 15.527)


def test_other_chips(result):
    by_device = {bound["device"]: bound for bound in result["bounds"]}
    for device, die in (("RTX 4090", 609), ("Jetson AGX Orin", 455)):
        bound = by_device[device]
        assert math.isclose(bound["percent_unscaled"], 100 * 1.84 / die, rel_tol=1e-6)
        assert bound["percent_ideally_scaled"] < bound["percent_unscaled"] < 2
        assert bound["power_percent"] < 1.81
    assert math.isclose(by_device["RTX 4090"]["percent_ideally_scaled"], 100 * 1.84 / 609 * (5 / 28) ** 2, rel_tol=1e-6)
    # 273 bytes per cycle of 5.11 bits are 427.4 values, 730.9 bits of exponents at 1.71 each, 40 per unit.
    assert by_device["systolic array NPU"]["decoders_for_memory"] == math.ceil(273 * 8 / 5.11 * 1.71 / 40)


def test_fewer_units_stall(result):
    factors = {
        int(check["item"].split(",")[1].split()[0]): check["value"]
        for check in result["checks"]
        if check["item"].startswith("stall factor")
    }
    needed = {bound["device"]: bound for bound in result["bounds"]}["systolic array NPU"]["decoders_for_memory"]
    assert set(factors) == {40, 20, 10, 5}
    for count, factor in factors.items():
        assert math.isclose(factor, max(1.0, 273 * 8 / 5.11 * 1.71 / 40 / count), rel_tol=1e-5)
        assert (factor > 1) == (count < needed)


def test_bars_can_be_missed(result):
    moved = [{**row, "model_value": row["model_value"] * 1.1, "relative_error": 0.1} for row in result["rows"]]
    missed = area_power.missed_bars(moved)
    assert [sum(line.startswith(kind) for line in missed) for kind in (*area_power.BARS, "units")] == [4, 1, 1, 12]


def test_command(capsys, monkeypatch, tmp_path, result):
    monkeypatch.setattr(command, "reproduce", lambda: result)
    monkeypatch.setattr("sys.argv", ["cassandra", "--json", str(tmp_path / "a" / "r.json")])
    command.main()
    text = capsys.readouterr().out
    assert "All bars are met." in text
    assert "no test: as many fitted numbers as cells" in text
    assert "input: median 0.00%, max 0.00% (13 cells): no prediction" in text
    written = json.loads((tmp_path / "a" / "r.json").read_text(encoding="utf-8"))
    assert written["schema_version"] == 1
    assert len(written["rows"]) == 20
    assert set(written["rows"][0]) >= {"paper", "table", "conditions", "metric", "unit", "paper_value", "model_value"}


def test_consequences_name_their_units():
    for check in consequences.checks():
        assert set(check) == {"item", "value", "unit"}
        assert check["unit"]
        assert math.isfinite(check["value"])
