"""Searches, budgets, resumption and intervals of the tuning contest, on a made-up score."""

import json
import sys

import numpy as np
import pytest

from experiments.tuning_search import __main__ as command
from experiments.tuning_search.contest import GRADIENT, contest, entries, summary
from experiments.tuning_search.figure import contest_figure
from experiments.tuning_search.searches import RIVALS
from jaxspec.errors import InputError

PEAK = np.array([0.9, 0.2, 0.55, 0.7, 0.0])
START = np.full(5, 0.4)

#: Searches that need no library.
OWN = [name for name in RIVALS if name != "CMA-ES"]


class MadeUp:
    """A smooth hill; held-out text has it a little elsewhere."""

    origin = START

    def __init__(self):
        self.asked = 0

    def step_cost(self):
        return 0.55

    def speedup(self, place):
        assert np.all((place >= 0) & (place <= 1))
        self.asked += 1
        return float(2 * np.exp(-np.sum((place - PEAK) ** 2)))

    def held_out(self, place):
        return float(2 * np.exp(-np.sum((place - PEAK - 0.02) ** 2)))

    def climbed(self):
        return PEAK


@pytest.fixture
def without_libraries(monkeypatch):
    for name in set(RIVALS) - set(OWN):
        monkeypatch.delitem(RIVALS, name)


@pytest.mark.parametrize("name", RIVALS)
def test_every_search_keeps_to_its_budget_and_finds_better_places(name):
    if name not in OWN:
        pytest.importorskip("cma")
    for budget in (1, 7, 150):
        scores = MadeUp()
        place = RIVALS[name](scores.speedup, START, budget, 3)
        assert scores.asked == budget
        assert scores.speedup(place) >= scores.speedup(START)
    assert np.log(scores.speedup(place)) > 0.5 * np.log(2) > np.log(scores.speedup(START))
    np.testing.assert_array_equal(place, RIVALS[name](scores.speedup, START, budget, 3))


def test_a_missing_library_is_told_in_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(InputError, match=r"jaxspec\[searches\]"):
        RIVALS["CMA-ES"](MadeUp().speedup, START, 5, 0)


def test_rivals_may_spend_what_the_gradient_does(without_libraries):
    scores = MadeUp()
    rows = list(contest(scores, steps=20, seed=0, budgets=(1, 3)))
    assert [(row["search"], row["budget"]) for row in rows] == entries((1, 3))
    assert {row["evaluations"] for row in rows} == {12, 36}  # 20 steps at 0.55, and a comparison with the start
    first = rows[0]
    assert first["search"] == GRADIENT
    assert first["over_grid_calibration"] == pytest.approx(2 / scores.speedup(START))
    assert first["over_grid_held_out"] == pytest.approx(scores.held_out(PEAK) / scores.held_out(START))
    (again,) = contest(scores, steps=20, seed=0, budgets=(1,), done=entries((1,))[:-1], step_cost=0.55)
    assert again == rows[len(OWN)]


def test_intervals_are_students():
    base = {"temperature": 0.0, "budget": 1, "search": "a", "evaluations": 9, "over_grid_calibration": 1.2}
    rows = [base | {"over_grid_held_out": value} for value in (1.0, 1.1, 1.2)]
    rows.append(base | {"search": "b", "over_grid_held_out": 1.3})
    best, other = summary(rows)
    assert (best["search"], best["half_interval"], other["seeds"]) == ("b", None, 3)
    # 4.3027 is the quantile of two degrees of freedom; the deviation is 0.1.
    assert other["half_interval"] == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert other["optimism"] == pytest.approx((1.2 + 1.2 / 1.1 + 1) / 3 - 1)
    assert len(contest_figure([best, other], rows).axes) == 1


def test_a_stopped_run_goes_on(without_libraries, monkeypatch, tmp_path, capsys):
    made = []
    monkeypatch.setattr(command, "Scores", lambda config, *rest: made.append(config) or MadeUp())
    file = tmp_path / "found.json"
    arguments = ["--quick", "--seeds", "2", "--json", str(file)]
    command.main(arguments)
    whole = json.loads(file.read_text())
    assert [(config.seed, config.steps) for config in made] == [(0, 15), (1, 15)]
    assert len(whole["rows"]) == 2 * (1 + len(OWN))
    file.write_text(json.dumps(whole | {"rows": whole["rows"][:-2]}))
    command.main([*arguments, "--out", str(tmp_path / "figures")])
    assert json.loads(file.read_text()) == whole
    assert len(made) == 3
    assert (tmp_path / "figures" / "tuning_search.png").exists()
    assert GRADIENT in capsys.readouterr().out
    for refused in ([*arguments, "--prompts", "7"], ["--json", str(tmp_path / "figures" / "tuning_search.png")]):
        with pytest.raises(SystemExit) as caught:
            command.main(refused)
        assert caught.value.code == 2
        assert "give another --json" in capsys.readouterr().err
