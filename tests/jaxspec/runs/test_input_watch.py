"""Files that are replaced while a run reads them: nothing of the new ones is recorded under the digest of the old."""

import dataclasses
import os

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.runs.execute import execute_run
from jaxspec.runs.stages import Stages
from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting

CHANGED = r"model\.safetensors has changed since this command took its digest.*nothing of that is recorded"


@dataclasses.dataclass(frozen=True)
class Toy(Settings):
    """Settings that name a network."""

    model: str = setting("", "Network.")


@pytest.fixture
def network(tmp_path):
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"old weights")
    return folder


@pytest.fixture
def run(network, tmp_path):
    """Runs a toy command whose result is what it reads when it is prepared; each step can be preceded by something else."""

    def carried(*, check=lambda: None, load=lambda: None, stage=lambda: None, work=lambda: None):
        def prepare(directory, reporter):
            load()
            stages = Stages(directory.checkpoints, check_inputs=directory.check_inputs)
            found = (network / "model.safetensors").read_bytes()

            def compute():
                stage()
                return {"x": np.zeros(1)}

            def result():
                stages.run("only", compute)
                work()
                return {"read": found.decode()}

            return result

        return execute_run("trial", Toy(model=str(network)), prepare, check=check, out=tmp_path / "run")[0]

    return carried


def swapped(network, content=b"new weights"):
    """Replaces the weights as downloads do: another file gets the name."""

    def swap():
        (network / "part").write_bytes(content)
        os.replace(network / "part", network / "model.safetensors")

    return swap


def test_weights_that_are_swapped_after_their_digest_are_refused_before_anything_is_made(run, network, tmp_path):
    with pytest.raises(InputError, match=CHANGED):
        run(load=swapped(network))
    assert not (tmp_path / "run" / "config.toml").exists()
    assert run() == {"read": "new weights"}


@pytest.mark.parametrize("moment", ["stage", "work"])
def test_weights_that_are_swapped_later_spoil_no_stage_and_no_result(run, network, tmp_path, moment):
    with pytest.raises(InputError, match=CHANGED):
        run(**{moment: swapped(network)})
    assert not (tmp_path / "run" / "result.json").exists()
    assert (tmp_path / "run" / "checkpoints" / "stages" / "only").exists() == (moment == "work")
    with pytest.raises(InputError, match=r"model\.safetensors has changed since run directory"):
        run()
    swapped(network, b"old weights")()
    assert run() == {"read": "old weights"}
