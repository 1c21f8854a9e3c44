"""Every command that takes several devices says where some of them have no sequence."""

import jax
import pytest

from hwmodels import uniform_footprint
from jaxspec.models import DecoderConfig, init_params, save_directory
from jaxspec.settings import build_config
from jaxspec.studies import ScaleConfig
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.run import _check, _notes
from jaxspec.studies.scale.inputs import check_scale
from jaxspec.studies.scale.run import head_parts
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.run import device_remarks

ONE_LAYER = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)
#: A link is named, as the device's file has none.
TOGETHER = {"device": "rtx-4090", "data_parallel": 4, "link": "pcie5"}


def advised(out, batches):
    given = {"architecture": "llama-3.2-1b", "draft": "ngram", "acceptance": 0.5}
    config = build_config(AdviseConfig, TOGETHER | given | {"batch": batches})
    return _notes(config, _check(config)["rtx-4090"], "rtx-4090")["notes"]


def scaled(out, batches):
    directory = out / "one-layer"
    save_directory(init_params(ONE_LAYER, jax.random.key(3)), ONE_LAYER, directory, max_positions=128)
    given = {"model": str(directory), "task": "arithmetic", "method": "majority", "prompts": 2, "output_tokens": 4}
    given |= {"architecture": "llama-3.2-1b", "acceptance": 0.5, "samples": 4, "context": 70}
    config = build_config(ScaleConfig, TOGETHER | given | {"batch": batches[0], "batches": batches[1:]})
    return head_parts(config, check_scale(config), "rtx-4090", [uniform_footprint(16)], {})["notes"]


def swept(out, batches):
    # Replicas may be an axis too.
    axes = {"workload.batch": list(batches), "device.group.data_parallel": [2, 4]}
    given = {"axes": axes, "architecture": ("llama-3.2-1b",), "device": ("rtx-4090",), "link": "pcie5"}
    return device_remarks(plan_sweep(SweepConfig(**given)).grid, None)


@pytest.mark.parametrize("command", [advised, scaled, swept])
def test_replicas_without_a_sequence_are_told(command, tmp_path):
    (line,) = (note for note in command(tmp_path, (2, 9)) if "have nothing to do" in note)
    assert "2 sequences for 4 replicas: 2 of 4 have nothing to do at any moment" in line
    assert not any("have nothing to do" in note for note in command(tmp_path, (4, 9)))
