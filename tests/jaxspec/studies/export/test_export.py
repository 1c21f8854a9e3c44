"""An exported draft is the run's hard draft bit for bit, in a directory that opens; bad input says what to do."""

import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finished_runs import DENSE_KINDS, write_run
from safetensors.numpy import load_file, save_file

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models import load_directory
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, ExportConfig, TuneConfig, export_draft
from jaxspec.studies.export.run import open_run

pytestmark = pytest.mark.study

DEVICES = ("rtx-4090", "cassandra-npu")


def differing_knobs(config, draft_length, *, kv_cut_bits=4.0, offset=0.0):
    knobs = uniform_knobs(CASSANDRA1, config, draft_length=draft_length, kv_cut_bits=kv_cut_bits)
    shape = knobs.values["weight_prune"].shape
    # Shares of which six digits are not enough to tell how many values of a row they prune.
    prune = np.linspace(0.0, 0.95, shape[0] * shape[1]).reshape(shape) * (1 - 1e-7) - offset
    return knobs.replace_values(
        weight_prune=jnp.asarray(np.clip(prune, 0, 0.95), jnp.float32),
        weight_cut_bits=(jnp.arange(shape[0] * shape[1]).reshape(shape) % 8).astype(jnp.float32),
    )


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    """The tiny network with the files that a release has beside its weights."""
    folder = shutil.copytree(tiny_model, tmp_path_factory.mktemp("release") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "float32", "bos_token_id": 3}))
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 128}')
    (folder / "LICENSE.txt").write_text("as you like\n")
    (folder / "notes.md").write_text("not of the network\n")
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")  # a second copy, which no run reads
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {}}')  # another format left it behind
    return folder


@pytest.fixture(scope="module")
def config(model, some_text, small):
    return build_config(TuneConfig, small, {"model": str(model), "text": str(some_text), "device": DEVICES})


@pytest.fixture(scope="module")
def knobs(model):
    network = load_directory(model).config
    return {
        device: {"grid": uniform_knobs(CASSANDRA1, network), "tuned": differing_knobs(network, length, offset=offset)}
        for device, length, offset in zip(DEVICES, (3, 6), (0.0, 0.1))
    }


@pytest.fixture(scope="module")
def run(config, knobs, tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "tune-made", config, knobs)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The tuned draft of the second device, decoded too."""
    out = tmp_path_factory.mktemp("exported") / "draft"
    return export_draft(ExportConfig(run=str(run), device=DEVICES[1]), out), out


@pytest.fixture
def quick(run):
    """Exports of the first device that decode nothing."""
    return lambda out, force=False, **more: export_draft(
        ExportConfig(run=str(run), prompts=0, **more), out, force=force
    )


def patterns(value):
    return np.asarray(jnp.asarray(value, jnp.bfloat16)).view(np.uint16)


def test_every_weight_is_that_of_the_hard_draft(run, knobs, exported, model, tmp_path):
    result, out = exported
    drafts = open_run(str(run), device=DEVICES[1]).drafts(tmp_path, Reporter())
    expected, found = drafts.params(knobs[DEVICES[1]]["tuned"]), load_directory(out).params
    same = lambda a, b: np.testing.assert_array_equal(patterns(a), patterns(b))
    jax.tree.map(same, expected, as_computed(found))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {"bfloat16"}
    target = load_directory(model).params
    matrices = [np.asarray(found["layers"][kind], np.float32) for kind in DENSE_KINDS]
    for kind, matrix in zip(DENSE_KINDS, matrices):
        stored, kept = patterns(target["layers"][kind]), patterns(matrix)
        assert ((kept & stored) == kept).all()  # a subset of the target's own bits
        assert (kept != stored).any()
    share = sum(np.sum(matrix == 0) for matrix in matrices) / sum(matrix.size for matrix in matrices)
    assert result.zero_share.value == pytest.approx(share)


def test_what_lies_in_the_directory(exported, model):
    result, out = exported
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    copied = {"generation_config.json", "tokenizer_config.json", "LICENSE.txt"}
    engines = {f"engines/{name}" for name in ("with_transformers.py", "vllm.json", "sglang.txt", "llama_cpp.txt")}
    own = {"model.safetensors", "config.json", "README.md", "jaxspec_export.json"}
    assert names == copied | engines | own
    assert all((out / name).read_bytes() == (model / name).read_bytes() for name in copied)
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (model, out))
    assert ours == theirs | {"torch_dtype": "bfloat16"}
    # The order of one file of transformers: every tensor of the target, under the same name.
    assert set(load_file(out / "model.safetensors")) == set(load_file(model / "model.safetensors"))
    manifest = json.loads((out / "jaxspec_export.json").read_text())
    assert manifest["files"] == {name: (out / name).stat().st_size for name in names - {"jaxspec_export.json"}}
    assert manifest["zero_share"] == result.zero_share.value
    assert manifest["status"]["alone"]["tokens_per_cycle"] == "measured"


def test_engines_get_the_tuned_number_of_tokens(exported):
    result, out = exported
    assert result.draft_length.value == 6
    settings = json.loads((out / "engines/vllm.json").read_text())
    assert settings == {"method": "draft_model", "model": str(out), "num_speculative_tokens": 6}
    sglang = (out / "engines/sglang.txt").read_text()
    assert re.search(r"--speculative-num-steps 6 .*--speculative-num-draft-tokens 7", sglang.replace("\\\n", ""))
    assert "--spec-draft-n-max 6 " in (out / "engines/llama_cpp.txt").read_text()
    page = (out / "README.md").read_text()
    script = (out / "engines/with_transformers.py").read_text()
    assert "num_assistant_tokens = 6" in script
    compile(script, "with_transformers.py", "exec")
    assert script.rstrip() in page
    assert json.dumps(settings) in page
    assert "no tokenizer files" not in page


def test_device_and_configuration_choose(quick, knobs, tmp_path):
    first = quick(tmp_path / "first")
    assert (first.device, first.configuration, first.draft_length.value) == (DEVICES[0], "tuned", 3)
    grid = quick(tmp_path / "grid", configuration="grid", device=DEVICES[1])
    assert (grid.configuration, grid.draft_length.value) == ("grid", 5)
    zeros = np.mean(np.asarray(load_directory(tmp_path / "grid").params["layers"]["down"], np.float32) == 0)
    assert zeros == pytest.approx(round(0.4 * 24) / 24)


def refusal(function):
    with pytest.raises(InputError) as caught:
        function()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_places_that_are_not_written_into(quick, run, model, tmp_path):
    quick(tmp_path / "there")
    assert "--force" in refusal(lambda: quick(tmp_path / "there"))
    quick(tmp_path / "there", force=True)
    (tmp_path / "mine").mkdir()
    quick(tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    for force in (False, True):
        assert "'letter.txt' and is no earlier export" in refusal(
            lambda force=force: quick(tmp_path / "mine", force=force)
        )
        assert "the run directory" in refusal(lambda force=force: quick(run, force=force))
        assert "the target's folder" in refusal(lambda force=force: quick(model, force=force))
    assert "is a file" in refusal(lambda: quick(tmp_path / "mine/letter.txt"))


def test_runs_that_cannot_be_exported(run, config, knobs, some_text, small, model, tmp_path):
    export = lambda path, **more: export_draft(ExportConfig(run=str(path), prompts=0, **more), tmp_path / "out")
    assert "no config.toml" in refusal(lambda: export(tmp_path))
    assert "did you mean 'tuned'? allowed are grid, tuned" in refusal(lambda: export(run, configuration="tunde"))
    assert "did you mean 'rtx-4090'?" in refusal(lambda: export(run, device="rtx-409"))
    unfinished = write_run(tmp_path / "unfinished", config, knobs)
    (unfinished / "result.json").unlink()
    assert "not finished; run the same `jaxspec tune` again" in refusal(lambda: export(unfinished))
    (unfinished / "result.json").write_text("[{}]")
    assert "holds no configurations" in refusal(lambda: export(unfinished))
    (unfinished / "config.toml").write_text("design = 'sweep'\n")
    assert "no draft to export" in refusal(lambda: export(unfinished))
    changed = shutil.copytree(model, tmp_path / "changed")
    settings = {"model": str(changed), "text": str(some_text), "device": DEVICES}
    other = write_run(tmp_path / "other", build_config(TuneConfig, small, settings), knobs)
    weights = bytearray((changed / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (changed / "model.safetensors").write_bytes(bytes(weights))
    assert "model.safetensors has changed since run" in refusal(lambda: export(other))
    assert not (tmp_path / "out").exists()


def test_float16_stays_float16(model, some_text, tmp_path):
    half = shutil.copytree(model, tmp_path / "half")
    tensors = {name: value.astype(np.float32) for name, value in load_file(model / "model.safetensors").items()}
    # Ten bits of mantissa, of which bfloat16 has seven; norms as some releases have them.
    narrow = {name: (1.001 * value).astype(np.float16) for name, value in tensors.items() if value.ndim > 1}
    save_file(tensors | narrow, half / "model.safetensors")
    config = EvaluateConfig(model=str(half), text=str(some_text), prompts=2, prompt_tokens=12, output_tokens=10)
    given = uniform_knobs(CASSANDRA1, load_directory(half).config, weight_cut_bits=3.0)
    evaluated = write_run(tmp_path / "evaluated", config, {"given": given})
    result = export_draft(ExportConfig(run=str(evaluated), prompts=0), tmp_path / "out")
    assert result.dtype == json.loads((tmp_path / "out/config.json").read_text())["torch_dtype"] == "float16"
    found = load_file(tmp_path / "out/model.safetensors")
    for name, value in narrow.items():
        assert found[name].dtype == np.float16
        kept, stored = found[name].view(np.uint16), value.view(np.uint16)
        cut = "proj" in name
        np.testing.assert_array_equal(kept, np.where(kept != 0, stored & (0xFFF8 if cut else 0xFFFF), 0))
        assert np.any(kept == 0) == cut


def test_a_run_of_evaluate_exports_the_given_draft(model, some_text, tmp_path):
    config = EvaluateConfig(model=str(model), text=str(some_text), prompts=2, prompt_tokens=12, output_tokens=10)
    given = uniform_knobs(CASSANDRA1, load_directory(model).config, kv_cut_bits=0.0)
    evaluated = write_run(tmp_path / "evaluated", config, {"given": given})
    result = export_draft(ExportConfig(run=str(evaluated), prompts=0), tmp_path / "out")
    assert (result.command, result.configuration, result.compressed_kv) == ("evaluate", "given", False)
    assert "KV cache is the draft's own here" in (tmp_path / "out/README.md").read_text()
