"""A container made of a run of `jaxspec evaluate` holds the draft that was evaluated."""

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packed_runs import CONFIG, patterns
from rich.console import Console

from jaxspec.compress.knobs import NORMS_FILE, knobs_of_result
from jaxspec.models.embedded import load_model
from jaxspec.models.hf_export import save_directory
from jaxspec.models.matrix import stack_of
from jaxspec.runs import Reporter
from jaxspec.runs.directory import RunDirectory
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, PackConfig, evaluate, pack_checkpoint
from jaxspec.studies.evaluate.run import evaluate_drafts
from jaxspec.studies.measured.run_context import begin_run

#: Apart from what makes a run a matter of seconds.
GIVEN = {"weight_prune": 0.3, "weight_cut_bits": 2, "kv_prune": 0.25, "kv_cut_bits": 3, "draft_length": 2}
OF_TUNING = ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")


@pytest.mark.study
def test_the_packed_draft_is_the_evaluated_one(random_network, some_text, small, tmp_path):
    # Of matrices so large that coding makes each of them smaller: others are stored as they are.
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_network(CONFIG, 3, sharpness=3.0))
    save_directory(network, CONFIG, tmp_path / "model", max_positions=128)
    model = str(tmp_path / "model")
    settings = {name: value for name, value in small.items() if name not in OF_TUNING}
    config = build_config(EvaluateConfig, settings, GIVEN | {"model": model, "text": str(some_text)})
    _, directory = evaluate(config, out=str(tmp_path / "run"))
    assert (directory.path / NORMS_FILE).is_file()
    packing = PackConfig(model=model, knobs=str(directory.path / "result.json"))
    assert "is not what run" not in notes_of_packing(packing, tmp_path / "model.jspk")
    packed = load_model(tmp_path / "model.jspk", part="draft")
    inputs = json.loads((directory.path / "inputs.json").read_text())
    with RunDirectory("evaluate", config, inputs=inputs, out=directory.path) as again:
        drafts = evaluate_drafts(config, begin_run(config, again, Reporter()))
        measured = drafts.params(knobs_of_result(packing.knobs, drafts.work.setup.scheme, packed.config))
    for kind in packed.config.matrix_kinds:
        found, expected = (stack_of(each["layers"][kind]).values() for each in (packed.params, measured))
        np.testing.assert_array_equal(patterns(found), patterns(expected))
        assert 0.28 < np.mean(np.asarray(found) == 0) < 0.32
    weights = bytearray((tmp_path / "model" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model" / "model.safetensors").write_bytes(weights)
    notes = notes_of_packing(packing, tmp_path / "other.jspk")
    assert f"note: model.safetensors is not what run '{directory.path}' was made with" in notes


def notes_of_packing(packing, out):
    """Lines of `jaxspec pack`."""
    said = io.StringIO()
    pack_checkpoint(packing, out, reporter=Reporter(Console(file=said, width=1000)))
    return said.getvalue()
