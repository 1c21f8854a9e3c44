"""Exports of schemes that round the target: it is written beside the draft, and both are the run's bit for bit."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finished_runs import write_run

from jaxspec.compress import find_scheme
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.models import load_directory
from jaxspec.models.decoder import forward_text
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import ExportConfig, TuneConfig, export_draft
from jaxspec.studies.export import forms as export_module
from jaxspec.studies.export.run import open_run

pytestmark = pytest.mark.study

CUT = {"weight_prune": 0.4, "weight_cut_bits": 3.0}

#: Scheme, its knobs, and the number format that holds its values exactly.
CASES = [("cassandra2", CUT, "bfloat16"), ("any-precision", {"slice_bits": 4.0}, "float32")]


@pytest.fixture(scope="module")
def make(tiny_model, some_text, small, tmp_path_factory):
    """A finished run of a scheme, with its knobs."""

    def run(scheme, knobs, model=tiny_model, config=TuneConfig, name="tuned", **more):
        given = {"model": str(model), "text": str(some_text), "scheme": scheme} | more
        settings = build_config(config, {key: small[key] for key in small if hasattr(config, key)}, given)
        network = load_directory(model).config
        found = uniform_knobs(find_scheme(scheme), network, knobs, draft_length=3)
        return write_run(tmp_path_factory.mktemp("runs") / "run", settings, {name: found}), found

    return run


def export(run, out, **more):
    return export_draft(ExportConfig(run=str(run), **{"prompts": 0} | more), out)


def same(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), found, expected)


@pytest.mark.parametrize(("scheme", "given", "dtype"), CASES)
def test_target_and_draft_are_those_that_the_run_decodes_with(make, tiny_model, tmp_path, scheme, given, dtype):
    run, knobs = make(scheme, given)
    result = export(run, tmp_path / "out")
    drafts = open_run(str(run)).drafts(tmp_path / "scratch", Reporter())
    target, draft = (load_directory(tmp_path / place) for place in ("out/target", "out"))
    expected = drafts.work.setup.params, drafts.params(knobs)
    same((as_computed(target.params), as_computed(draft.params)), expected)
    assert target.params["layers"]["q"].dtype == dtype
    # It is not the checkpoint, and the draft is not the target.
    stored = np.asarray(load_directory(tiny_model).params["layers"]["down"], np.float32)
    matrices = [np.asarray(each.params["layers"]["down"], np.float32) for each in (target, draft)]
    assert (matrices[0] != stored).any()
    assert (matrices[0] != matrices[1]).any()
    text = jnp.arange(12)[None]
    logits = [forward_text(params, target.config, text).logits for params in (as_computed(target.params), expected[0])]
    np.testing.assert_array_equal(*logits)
    assert (result.target_dtype, result.dtype) == (dtype, dtype)


def test_draft_and_target_are_two_directories(make, tiny_model, tmp_path):
    model = shutil.copytree(tiny_model, tmp_path / "model")
    (model / "tokenizer_config.json").write_text('{"model_max_length": 128}')
    (model / "LICENSE.txt").write_text("as you like\n")
    run, _ = make("any-precision", {}, model)
    out = tmp_path / "out"
    result = export(run, out)
    names = {path.name for path in (out / "target").iterdir()}
    assert names == {"model.safetensors", "config.json", "tokenizer_config.json", "LICENSE.txt"}
    for folder in (out, out / "target"):
        assert (folder / "LICENSE.txt").read_bytes() == (model / "LICENSE.txt").read_bytes()
        assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "float32"
    manifest = json.loads((out / "jaxspec_export.json").read_text())
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} - {"jaxspec_export.json"}
    assert manifest["files"] == {name: (out / name).stat().st_size for name in files}
    assert (manifest["target"], manifest["checkpoint"], manifest["directory"]) == (
        f"{out}/target",
        str(model),
        str(out),
    )
    page, engines = (out / "README.md").read_text(), out / "engines"
    assert f"**The target is in `target/`, not in {model}.**" in page
    assert json.loads((engines / "vllm.json").read_text())["model"] == str(out)
    assert (engines / "llama_cpp.txt").read_text().count("--outtype f32") == 2
    assert result.container is None


def test_blocks_of_exponents_need_no_wide_numbers_and_caches_are_as_engines_keep_them(make, tmp_path, monkeypatch):
    run, _ = make("cassandra2", CUT)
    networks = []

    def decode(params, network, draft, *given, **more):
        networks.extend((network, draft.draft.config))
        return decode_chains(params, network, draft, *given, **more)

    decode_chains = export_module.decode_chains
    monkeypatch.setattr(export_module, "decode_chains", decode)
    result = export(run, tmp_path / "out", prompts=1)
    assert [network.shared_kv_exponents for network in networks] == [None, None]
    assert result.alone.tokens_per_cycle.value >= 1
    page = (tmp_path / "out" / "README.md").read_text()
    assert "kept its KV cache in blocks of shared exponents" in page
    assert "float32" not in page
    assert "low mantissa bits of the others cut to zero" in page


def test_a_streamed_run_exports_the_same_files(make, tmp_path):
    for name, more in (("whole", {}), ("streamed", {"stream": True})):
        run, _ = make("any-precision", {"slice_bits": 3.0}, **more)
        export(run, tmp_path / name)
    for name in ("model.safetensors", "target/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "streamed" / name).read_bytes()
