"""The figure of a sweep is drawn from its result, and takes nothing with it where it cannot be written."""

import importlib

import pytest

from jaxspec.studies.sweep import view
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.result import SweepResult
from jaxspec.studies.sweep.run import sweep

pytestmark = pytest.mark.study

CONFIG = SweepConfig(axes={"workload.batch": [1, 3]}, device=("rtx-4090",), max_draft_length=2)


def test_a_figure_that_cannot_be_written_takes_no_result_with_it(tmp_path, monkeypatch):
    run = tmp_path / "run"

    def full(figure, path):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as context:
        context.setattr(view, "write_figure", full)
        with pytest.raises(OSError, match="No space left"):
            sweep(CONFIG, out=run)
    found = SweepResult.load(run / "result.json")
    # The package has a function of the module's name.
    monkeypatch.setattr(importlib.import_module("jaxspec.studies.sweep.run"), "_run", lambda *_: pytest.fail("anew"))
    assert [sweep(CONFIG, out=run)] == found
    assert (run / view.FRONT_FILE).stat().st_size > 5000
