"""Speedups on this machine: what is asked, how predictions are judged, what a folder of an earlier run is good for."""

import json

import numpy as np
import pytest

from experiments.host_speedups.__main__ import draw, summarise
from experiments.host_speedups.run import BATCHES, TREES, Host, groups, measure
from hwmodels import NO_ENGINE, catalog
from jaxspec.runs.progress import Reporter


def row(name, told, clock, *, batch=1, draft="ngram", shape="chain of 2", status="predicted", **more):
    """A row as a run makes it; a step without speculation takes 1 ms, a cycle yields two tokens."""
    spread = lambda value: {"median": value, "low": 0.9 * value, "high": 1.1 * value}
    found = {
        "id": name,
        "draft": draft,
        "shape": shape,
        "batch": batch,
        "status": status,
        "drafted_tokens": 2,
        "draft_steps": 2,
        "tokens_per_cycle": 2.0,
        "gain_per_turn": 2.0,
        "noise": 0.01,
        "predicted_ar_s": 1e-3,
        "predicted_cycle_s": 2e-3 / told,
        "predicted_verify_s": 1e-3,
        "predicted_speedup": told,
        "measured_speedup": spread(clock),
        "measured_ar_s": spread(1e-3),
        "measured_cycle_s": spread(2e-3 / clock),
        "measured_verify_s": spread(1e-3),
        "measured_cycle_over_step": spread(2.0 / clock),
    }
    return found | more


def test_every_draft_length_and_tree_alone_and_in_a_batch():
    every = groups()
    names = [name for group in every for name in group.row_ids()]
    assert len(names) == len(set(names)) == 2 * (3 * 8 + 5)
    assert {group.batch for group in every} == set(BATCHES) == {1, 16}
    trees = next(group for group in every if group.shapes == tuple(TREES))
    assert [len(parent) for parent in trees.parents()] == [4, 6, 8, 16, 25]
    chains = every[0].parents()
    assert [parent.tolist() for parent in chains[:3]] == [[-1], [-1, 0], [-1, 0, 1]]


def test_errors_order_and_the_way_that_is_picked():
    rows = [
        row("a", 1.1, 1.0, gain_per_turn=3.0),
        row("b", 2.0, 2.0, gain_per_turn=2.0),
        row("c", 1.5, 1.2, gain_per_turn=2.5),
        row("d", 2.5, 2.5, gain_per_turn=2.2),
        row("e", 0.9, 0.8, batch=16),
    ]
    found = summarise(rows)
    assert found["rows"] == 5
    errors = found["parts"]["all"]["speedup"]["this model"]
    assert errors["rows"] == 5
    assert errors["median"] == pytest.approx(np.median([0.1, 0.0, 0.25, 0.0, 0.125]))
    assert errors["largest"] == pytest.approx(0.25)
    assert errors["spearman"] == pytest.approx(1.0)
    assert found["parts"]["all"]["times"]["cycle over step"]["largest"] == pytest.approx(0.2)
    alone = found["picked"]["batch 1"]
    assert alone["this model"] == {"way": "d", "share_of_fastest": 1.0, "right": True}
    assert alone["tokens per cycle alone"] == {"way": "a", "share_of_fastest": 0.4, "right": False}
    assert found["picked"]["batch 16"]["this model"]["way"] == "no speculation"
    assert draw(rows).axes[0].get_xlabel().startswith("speedup")


@pytest.mark.device_matrix
def test_predictions_are_written_before_the_clock_starts(tmp_path, monkeypatch):
    """Whatever the clock then says, or that it fails: they are there."""
    from experiments.host_speedups import run

    host, (group, *_) = Host("host", catalog.device("rtx-4090"), NO_ENGINE), groups((1,), (1,), trees=False)
    seen = []

    def stopped(*_, counted, **__):
        counts = run.CountedWay(steps=1, tokens=60, turns=30, tokens_per_cycle=2.0, agree=1.0)
        alone = run.CountedWay(steps=0, tokens=60, turns=60, tokens_per_cycle=1.0, agree=1.0)
        counted({run.AUTOREGRESSIVE: alone, group.row_ids()[0]: counts})
        seen.extend(path.name for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "time_ways", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure(host, [group], tmp_path, repeats=3, output_tokens=40, reporter=Reporter())
    assert sorted(seen) == ["ngram-chains-1-predicted.json", "settings.json"]
    told = json.loads((tmp_path / "ngram-chains-1-predicted.json").read_text())["rows"]["ngram, chain of 1, batch 1"]
    assert told["predicted_speedup"] == pytest.approx(2.0 * told["predicted_ar_s"] / told["predicted_cycle_s"])
    assert 1.0 < told["predicted_speedup"] <= 2.0
