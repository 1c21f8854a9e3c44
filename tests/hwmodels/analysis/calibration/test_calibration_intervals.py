"""Intervals of held-out errors, and how often they cover groups that they do not know."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from hwmodels import catalog
from hwmodels.analysis.calibration.intervals import COVERAGE, covered_left_out, interval_record

CATALOG = Path(catalog.__file__).parent


def test_each_group_is_held_against_all_others_by_hand():
    """Groups a and b err by 0 to 10 %; c, of which all rows lie at 50 %, is in nobody's interval but pulls theirs up."""
    spread = np.linspace(0.0, 0.1, 11)
    logs = np.concatenate([spread, spread, [0.5, 0.5]])
    names = ["a"] * 11 + ["b"] * 11 + ["c"] * 2
    inside = 0
    for name in "abc":
        own = np.array([one == name for one in names])
        low, high = np.quantile(logs[~own], [0.05, 0.95])
        inside += int(np.sum((logs[own] >= low) & (logs[own] <= high)))
    assert 0 < inside < 22  # a and b lose their lowest row, c both
    assert covered_left_out(logs, names) == pytest.approx(inside / 24)
    record = interval_record(np.ones(24), np.exp(logs), np.ones(24, bool), names, few_groups=True)
    assert record["covered_left_out"] == pytest.approx(inside / 24)
    assert "covered_left_out" not in interval_record(np.ones(24), np.exp(logs), np.ones(24, bool), names)


def test_many_groups_that_err_alike_are_covered_as_stated():
    logs = np.random.default_rng(0).normal(0.0, 0.1, 4000)
    names = [str(row % 20) for row in range(len(logs))]
    record = interval_record(np.ones(len(logs)), np.exp(logs), np.ones(len(logs), bool), names, few_groups=True)
    assert record["covered_left_out"] == pytest.approx(COVERAGE, abs=0.01)
    assert record["covered"] == pytest.approx([COVERAGE] * 2, abs=0.02)


def test_rows_that_a_fit_has_seen_do_not_count():
    logs, held = np.array([0.0, 0.1, 0.0, 0.1, 9.0]), np.array([True] * 4 + [False])
    record = interval_record(np.ones(5), np.exp(logs), held, ["a", "a", "b", "b", "c"], few_groups=True)
    assert record["high"] < 1.2
    assert record["covered_left_out"] == 0.0  # quantiles lie within two values


def _records(table):
    for value in table.values():
        if isinstance(value, dict):
            if "interval" in value:
                yield value["interval"]
            yield from _records(value)


@pytest.mark.parametrize("folder", ["calibrated", "links"])
def test_intervals_of_few_groups_cover_groups_left_out(folder):
    """Of the catalog's files: routed experts by network, collectives by size of the message."""
    shares = []
    for path in sorted((CATALOG / folder).rglob("*.toml")):
        record = tomllib.loads(path.read_text(encoding="utf-8"))
        intervals = list(_records(record.get("experts", {}) if folder == "calibrated" else record.get("measured", {})))
        shares += [one["covered_left_out"] for one in intervals]
    assert len(shares) == {"calibrated": 25, "links": 35}[folder]
    # Target: 85 to 95 %. One of the links' 35 misses it, all-gather over PCIe 4 with 84.1 %.
    assert sum(not 0.85 <= share <= 0.95 for share in shares) == {"calibrated": 0, "links": 1}[folder]
