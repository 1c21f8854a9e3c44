"""Weights that are replaced while an export works: nothing is written that may be of two networks."""

import shutil

import pytest
from finished_runs import write_run

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models import load_directory
from jaxspec.settings import build_config
from jaxspec.studies import ExportConfig, TuneConfig, export_draft
from jaxspec.studies.export import run as export_module


@pytest.mark.study(1)
@pytest.mark.parametrize("moment", ["set_up", "readme"])
def test_weights_that_are_swapped_meanwhile_are_not_exported(
    tiny_model, some_text, small, tmp_path, monkeypatch, moment
):
    """Neither after they are loaded, which is told before the draft decodes, nor while files are written."""
    model = shutil.copytree(tiny_model, tmp_path / "model")
    config = build_config(TuneConfig, small, {"model": str(model), "text": str(some_text), "device": ("rtx-4090",)})
    knobs = {"rtx-4090": {"tuned": uniform_knobs(CASSANDRA1, load_directory(model).config)}}
    run = write_run(tmp_path / "run", config, knobs)
    weights, step = model / "model.safetensors", getattr(export_module, moment)

    def swap(*given):
        found = step(*given)
        weights.write_bytes(weights.read_bytes() + b"new")
        return found

    monkeypatch.setattr(export_module, moment, swap)
    if moment == "set_up":
        monkeypatch.setattr(export_module, "_decoded_alone", pytest.fail)
    with pytest.raises(InputError, match=r"^model\.safetensors has changed since this command took its digest"):
        export_draft(ExportConfig(run=str(run), prompts=0), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "run"]
