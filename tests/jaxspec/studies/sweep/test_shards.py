"""Sweeps in parts: shards, local devices, interrupts; the file is the same to the byte."""

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxspec.cli import main
from jaxspec.errors import InputError
from jaxspec.settings.base import to_toml
from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config
from jaxspec.studies.sweep.points_file import check_points, read_pieces
from jaxspec.studies.sweep.run import merge_sweeps, sweep

pytestmark = pytest.mark.signals

grid_module = importlib.import_module("jaxspec.studies.sweep.grid")
parts_module = importlib.import_module("jaxspec.studies.sweep.points_file")
# Two networks of one form share a program; 12 points of each in chunks of four, every other one of two.
CONFIG = SweepConfig(
    axes={
        "device.memory.bandwidth_bytes_per_s": {"from": 1e11, "to": 9e11, "points": 2, "scale": "log"},
        "workload.batch": [1, 3, 4],
        "acceptance.alpha_token": [0.55, 0.9],
    },
    architecture=("llama-3.2-1b", "llama-3.2-3b"),
    max_draft_length=2,
)
MOST, CHUNK, SHARDS = 5, 4, 9

ON_FOUR = f"""
import importlib, sys
import jax
grid, parts = (importlib.import_module(f"jaxspec.studies.sweep.{{name}}") for name in ("grid", "points_file"))
from jaxspec.studies import read_sweep_config, sweep
assert jax.local_device_count() == 4
grid.CHUNK, parts.PART_CHUNKS = {MOST}, 2
sweep(read_sweep_config(sys.argv[1]), out=sys.argv[2])
"""


def shard(number, shards=SHARDS):
    return dataclasses.replace(CONFIG, shard=f"{number}/{shards}")


@pytest.fixture(scope="module", autouse=True)
def _small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_module, "CHUNK", MOST)
        patch.setattr(parts_module, "PART_CHUNKS", 2)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The whole sweep, and its eight chunks in nine shards, of which one is empty."""
    path = tmp_path_factory.mktemp("sweeps")
    sweep(CONFIG, out=path / "whole")
    for number in range(1, SHARDS + 1):
        sweep(shard(number), out=path / f"part-{number}")
    return path


def parts(folder):
    return [str(folder / f"part-{number}") for number in range(1, SHARDS + 1)]


def points(path):
    return (path / "sweep.parquet").read_bytes()


def test_shards_merge_to_the_whole_sweep(folder, tmp_path):
    counts = [check_points(path) for path in parts(folder)]
    assert sum(counts) == 24
    assert 0 in counts
    out = tmp_path / "merged"
    result = merge_sweeps(list(reversed(parts(folder))), out=out)
    assert points(out) == points(folder / "whole")
    text = (folder / "whole" / "result.json").read_text().replace(str(folder / "whole"), str(out))
    assert (out / "result.json").read_text() == text
    assert (out / "config.toml").read_text() == to_toml(CONFIG)
    assert result.shard is None
    assert merge_sweeps(parts(folder), out=out) == result
    assert sum(len(piece["fits"]) for piece in read_pieces(out)) == 24


def test_the_command_merges_too(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["sweep", "merge", *parts(folder), "--json", "merged.json"])
    assert not left.value.code
    assert "24 points" in " ".join(capsys.readouterr().out.split())
    (run,) = Path("runs").iterdir()
    assert points(run) == points(folder / "whole")


def test_four_devices_give_the_same_bytes(folder, tmp_path):
    (tmp_path / "sweep.toml").write_text(to_toml(CONFIG))
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    subprocess.run(
        [sys.executable, "-c", ON_FOUR, str(tmp_path / "sweep.toml"), str(tmp_path / "four")],
        check=True,
        timeout=300,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert points(tmp_path / "four") == points(folder / "whole")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts[1:], "8 of 9 shards came; missing are 1/9"),
        (lambda parts: [*parts, parts[2]], "shard 3/9 came twice"),
        (lambda parts: [*parts[:-1], "whole"], "'whole' is a whole sweep, not a shard"),
        (lambda parts: [*parts[:-1], "other"], "'other' is a shard of another sweep"),
        (lambda parts: [*parts[:-1], "unfinished"], "'unfinished' is not finished; jaxspec runs resume"),
        (lambda parts: [*parts[:-1], "changed"], "config.toml' has changed since the run was begun"),
        (lambda parts: [*parts[:-1], "damaged"], "sweep.parquet' cannot be read"),
    ],
)
def test_what_does_not_make_a_sweep_is_refused(folder, tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "whole", "whole")
    for name in ("unfinished", "damaged", "other", "changed"):
        shutil.copytree(folder / f"part-{SHARDS}", name)
    os.unlink("unfinished/result.json")
    Path("damaged/sweep.parquet").write_bytes(b"PAR1")
    for name in ("other", "changed"):
        Path(name, "config.toml").write_text(to_toml(dataclasses.replace(shard(SHARDS), max_draft_length=3)))
    os.unlink("other/run.json")  # of an earlier version, which did not record what it wrote
    with pytest.raises(InputError, match=message):
        merge_sweeps(change(parts(folder)), out="merged")
    assert not Path("merged").exists()


def test_the_order_of_axes_is_kept_and_is_part_of_a_run(folder, tmp_path):
    (tmp_path / "again.toml").write_text(to_toml(CONFIG))
    assert list(read_sweep_config(tmp_path / "again.toml").axes) == list(CONFIG.axes)
    other = dataclasses.replace(CONFIG, axes=dict(reversed(CONFIG.axes.items())))
    with pytest.raises(InputError, match="differs in axes"):
        sweep(other, out=folder / "whole")


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/2/3", "1/99999999"])
def test_shards_that_are_none(text):
    with pytest.raises(InputError, match="shard is"):
        dataclasses.replace(CONFIG, shard=text)
