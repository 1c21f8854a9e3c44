import json
import math

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.partial_files import plain, to_json, write_text
from jaxspec.runs.directory import RunDirectory, read_metrics
from jaxspec.studies import TuneConfig


def open_run(path, config=None, inputs=None, force=False):
    return RunDirectory("tune", config or TuneConfig(), inputs=inputs or {"a": "1"}, out=path, force=force)


def closed(run):
    run.close()
    return run


def test_the_same_configuration_reopens_and_another_does_not(tmp_path):
    closed(open_run(tmp_path / "r"))
    closed(open_run(tmp_path / "r"))
    with pytest.raises(InputError, match=r"another configuration \(differs in seed\)"):
        open_run(tmp_path / "r", TuneConfig(seed=3))
    closed(open_run(tmp_path / "r", TuneConfig(seed=3), force=True))
    with pytest.raises(InputError, match="differs in seed"):
        open_run(tmp_path / "r")


def test_a_directory_in_use_is_refused(tmp_path):
    first = open_run(tmp_path / "r")
    with pytest.raises(InputError, match="in use by another process"):
        open_run(tmp_path / "r")
    first.close()
    closed(open_run(tmp_path / "r"))


def test_force_removes_a_runs_own_files_only(tmp_path):
    run = open_run(tmp_path / "r")
    run.write_result([{"x": 1}])
    (run.path / "notes.txt").write_text("mine")
    run.close()
    run = open_run(tmp_path / "r", force=True)
    assert run.finished() is None
    assert (run.path / "notes.txt").read_text() == "mine"
    run.close()


def test_unwritable_places_are_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        open_run(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be written"):
        open_run(tmp_path / "file" / "below")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "result.json").write_text("[]")
    with pytest.raises(InputError, match=r"no config\.toml"):
        open_run(tmp_path / "foreign")


def test_results_come_back(tmp_path):
    run = open_run(tmp_path / "r")
    run.write_result([{"b": np.float32(0.5), "a": [math.nan, np.arange(2)]}])
    assert run.finished() == [{"a": [None, [0, 1]], "b": 0.5}]
    run.write_metrics([{"step": 1}, {"step": 2}])
    assert [json.loads(line)["step"] for line in (run.path / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    assert [line["step"] for line in read_metrics(run.path)] == [1, 2]
    for damaged in ("{", '{"step": 1}\nnull\n', "[" * 100_000, "\xff"):
        (run.path / "metrics.jsonl").write_bytes(damaged.encode("latin-1"))
        with pytest.raises(
            InputError, match=r"metrics\.jsonl' is damaged \(.*remove it, and only the figure of the steps"
        ) as caught:
            read_metrics(run.path)
        assert len(str(caught.value).splitlines()) == 1
    run.close()


def test_json_is_sorted_plain_and_whole(tmp_path):
    assert to_json({"b": math.inf, "a": (np.int64(1), True)}) == '{\n  "a": [\n    1,\n    true\n  ],\n  "b": null\n}\n'
    assert plain(np.bool_(True)) is True
    write_text(tmp_path / "deep" / "x.txt", "one")
    with pytest.raises(TypeError):
        write_text(tmp_path / "deep" / "x.txt", 5)  # fails half-way: the old file stays, no part is left
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.txt"]
    assert (tmp_path / "deep" / "x.txt").read_text() == "one"


def test_what_a_killed_run_left_half_written_goes_when_it_is_resumed(tmp_path):
    closed(open_run(tmp_path / "r"))
    half = tmp_path / "r" / "checkpoints" / "stages" / "decoded" / "greedy.orbax-checkpoint-tmp-17" / "d"
    half.mkdir(parents=True)
    (half.parents[1] / "whole").mkdir()
    (tmp_path / "r" / "figures").mkdir()
    parts = (".sweep.parquet.4194309.part", ".result.json.4194309.part", "figures/.a.svg.4194309.part")
    for part in parts:
        (tmp_path / "r" / part).write_text("half")
    closed(open_run(tmp_path / "r"))
    assert not [part for part in parts if (tmp_path / "r" / part).exists()]
    assert [path.name for path in half.parents[1].iterdir()] == ["whole"]


def test_nothing_is_made_or_removed_before_a_run_begins(tmp_path):
    make = lambda **given: RunDirectory("tune", TuneConfig(), inputs={}, out=tmp_path / "r", begin=False, **given)
    run = closed(make())
    assert not list(tmp_path.iterdir())
    assert run.finished() is None
    with make() as run:
        run.begin()
        run.write_result([{"a": 1}])
    with make(force=True) as run:
        assert run.finished() is None
        assert (run.path / "result.json").exists()
    with make() as run:
        assert run.finished() == [{"a": 1}]
        with pytest.raises(InputError, match="in use by another process"):
            make()
