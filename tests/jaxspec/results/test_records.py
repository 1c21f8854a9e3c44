"""Typed results: JSON and back, statuses derived from quantities, and what is unknown."""

import dataclasses
import json
from typing import ClassVar

import pytest

from jaxspec.errors import InputError
from jaxspec.results import (
    UNKNOWN,
    Quantity,
    Record,
    Result,
    calibrated,
    given,
    inline_dict_field,
    measured,
    predicted,
    quantity_field,
)
from jaxspec.results.network_results import Configuration, PricedResult
from jaxspec.results.records import flat_table, rest_table, status_in


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(Record):
    alpha: Quantity[float] = UNKNOWN
    beta: Quantity[list] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(Record):
    place: int = 0
    speed: Quantity[float] = quantity_field(error="speed_error")
    knobs: dict[str, Quantity[float]] = inline_dict_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Record):
    has_status_table: ClassVar[bool] = True

    bits: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole(Result):
    name: str | None = None
    pays: Quantity[bool] = UNKNOWN
    part: Part = Part()
    mixed: Part | None = None
    rows: list[Row] = dataclasses.field(default_factory=list)
    inner: dict[str, Inner] = dataclasses.field(default_factory=dict)
    seconds: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)


WHOLE = Whole(
    name="w",
    pays=predicted(True),
    part=Part(alpha=measured(0.5), beta=measured([0.5, 0.25])),
    mixed=Part(alpha=given(3.0), beta=calibrated([1.0])),
    rows=[Row(place=1, speed=measured(2.0, 0.1), knobs={"cut": given(4.0)}), Row(place=2, speed=measured(3.0, 0.2))],
    inner={"a": Inner(bits=measured(4.5))},
    seconds={"grid": measured(7.0)},
)
PLAIN = {
    "name": "w",
    "pays": True,
    "part": {"alpha": 0.5, "beta": [0.5, 0.25]},
    "mixed": {"alpha": 3.0, "beta": [1.0]},
    "rows": [
        {"place": 1, "speed": 2.0, "speed_error": 0.1, "cut": 4.0},
        {"place": 2, "speed": 3.0, "speed_error": 0.2},
    ],
    "inner": {"a": {"bits": 4.5, "status": {"bits": "measured"}}},
    "seconds": {"grid": 7.0},
    "status": {
        "pays": "predicted",
        "part": "measured",
        "mixed": {"alpha": "input", "beta": "calibrated"},
        "rows": {"speed": "measured", "speed_error": "measured", "cut": "input"},
        "seconds": "measured",
    },
}


def test_a_result_becomes_json_and_comes_back(tmp_path):
    assert WHOLE.plain() == PLAIN
    (tmp_path / "result.json").write_text(json.dumps([PLAIN]))
    assert Whole.load(tmp_path / "result.json") == [WHOLE]
    (tmp_path / "one.json").write_text(json.dumps(PLAIN))
    assert Whole.load(tmp_path / "one.json") == [WHOLE]


def test_what_cannot_be_read_is_bad_input(tmp_path):
    for text in ("{", "[" * 100_000):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(InputError, match="is not valid JSON"):
            Whole.load(tmp_path / "broken.json")
    with pytest.raises(InputError, match="cannot be read"):
        Whole.load(tmp_path / "absent.json")


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_a_result_of_another_schema_is_refused(version):
    raw = PricedResult(device="rtx-4090").plain()
    assert PricedResult.from_plain(raw).device == "rtx-4090"
    with pytest.raises(InputError, match=f"schema_version is {version!r}, and this version of jaxspec reads 1; open"):
        PricedResult.from_plain(raw | {"schema_version": version})


def test_tables_can_be_flat_or_tell_exceptions_only():
    table = PLAIN["status"]
    assert flat_table(table) == {
        "pays": "predicted",
        "part": "measured",
        "alpha": "input",
        "beta": "calibrated",
        "speed": "measured",
        "speed_error": "measured",
        "cut": "input",
        "seconds": "measured",
    }
    assert rest_table(table) == {
        "pays": "predicted",
        "mixed.alpha": "input",
        "mixed.beta": "calibrated",
        "rows.cut": "input",
        "everything else": "measured",
    }


@pytest.mark.parametrize("arrange", [dict, flat_table, rest_table])
def test_parts_within_parts_keep_their_statuses(arrange):
    terms = {"cycle_s": "calibrated", "draft_pass_s": "input"}
    table = arrange({"engine": {"terms": terms}, "speed": "predicted", "pays": "predicted", "fits": "predicted"})
    assert {name: status_in(table, ("engine", "terms", name)) for name in terms} == terms
    assert status_in(table, ("speed",)) == "predicted"


def test_status_is_found_by_name_by_path_and_by_group():
    def status(**table):
        raw = {"acceptance": {"alpha_token": 0.5}, "status": table}
        return Configuration.from_plain(raw).acceptance.alpha_token.status

    assert status(alpha_token="measured") == "measured"
    assert status(**{"acceptance.alpha_token": "input"}) == "input"
    assert status(acceptance="calibrated") == "calibrated"
    assert status(acceptance={"alpha_token": "predicted"}) == "predicted"
    assert status(alpha_token=None) is None
    assert Configuration.from_plain({}).bits_per_weight.status is None
