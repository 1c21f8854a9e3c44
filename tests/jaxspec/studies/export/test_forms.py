"""A model and its low-bit copy for engines: what is written, opened again, measured and said; bad input says what to do."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import gguf
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from hwmodels import ALL_LAYER_MATRICES, KINDS, Acceptance, Case, Footprint, Workload, catalog, priced_chains
from jaxspec.errors import InputError
from jaxspec.formats.packed_integers import fp8_rows, int4_groups, packed_codes, scaled_rows
from jaxspec.models import load_directory, load_model
from jaxspec.models.architecture import architecture_of
from jaxspec.studies import ExportConfig, export_draft
from jaxspec.studies.export.view import shown

SMALL = {"prompts": 3, "prompt_tokens": 12, "output_tokens": 12, "draft_length": 2}


@pytest.fixture(scope="module")
def exported(tiny_model, some_text, tmp_path_factory):
    """A tiny network as GGUF files, its copy measured."""
    out = tmp_path_factory.mktemp("forms") / "out"
    config = ExportConfig(run=str(tiny_model), text=str(some_text), draft_type="q4_0", **SMALL)
    return export_draft(config, out), out


def test_files_open_and_the_copy_is_measured(exported, tiny_model):
    result, out = exported
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names == {"target.gguf", "draft.gguf", "README.md", "jaxspec_export.json", "engines/llama_cpp.txt"}
    assert (result.format, result.target_dtype, result.draft_dtype) == ("gguf", "q8_0", "q4_0")
    assert result.alone.prompts.value == 3
    tokens = result.alone.tokens_per_cycle
    assert tokens.status == "measured"
    assert 1 <= tokens.number <= 3
    assert result.speedup_vs_stored_ar.status == "predicted"
    found, expected = load_model(out / "target.gguf"), load_model(tiny_model)
    assert found.config.num_layers == expected.config.num_layers
    error = np.abs(np.asarray(found.params["embed"], np.float32) - np.asarray(expected.params["embed"], np.float32))
    assert 0 < error.max() < np.abs(np.asarray(expected.params["embed"], np.float32)).max() / 60
    assert json.loads((out / "jaxspec_export.json").read_text())["draft_dtype"] == "q4_0"


def test_the_command_that_starts_is_printed(exported):
    result, out = exported
    assert set(result.engines) == {"llama.cpp"}
    command = result.engines["llama.cpp"]
    assert command.split() == [
        *("llama-server", "\\", "--model", f"{out}/target.gguf", "--model-draft", f"{out}/draft.gguf"),
        *("--spec-type", "draft-simple", "\\", "--spec-draft-n-max", "2", "--spec-draft-n-min", "0"),
        *("--spec-draft-p-min", "0"),
    ]
    assert shown(result).commands == [command.rstrip()]
    assert command in (out / "README.md").read_text()


def test_the_speed_is_llama_cpps_own(exported):
    """With the instructions that its kernels take for each further row of a verification."""
    result, out = exported
    device, terms = catalog.device(result.device, engine="llama.cpp"), catalog.engine("llama.cpp")

    def blocks(part):
        tensors = [each for each in gguf.GGUFReader(out / f"{part}.gguf").tensors if len(each.shape) > 1]
        layers = [each for each in tensors if each.name.startswith("blk")]
        mean = lambda held: 8.0 * sum(each.n_bytes for each in held) / sum(float(each.n_elements) for each in held)
        ends = mean([each for each in tensors if each not in layers])
        return {kind: mean(layers) if kind in ALL_LAYER_MATRICES else ends for kind in KINDS}

    footprint = Footprint(blocks("draft"), blocks("target"), 16.0, 16.0)
    case = Case(
        device, architecture_of(load_model(out / "target.gguf").config), Workload(1.0, 1024.0), footprint, engine=terms
    )
    rates = Acceptance(jnp.nan_to_num(jnp.asarray(result.alone.acceptance.conditional.known, jnp.float32)))
    expected = priced_chains(case, rates).result.speedup_vs_stored_ar[-1]
    assert result.speedup_vs_stored_ar.known == pytest.approx(float(expected), rel=0.01)


def test_an_earlier_export_is_replaced_by_force(exported, tiny_model, some_text):
    _, out = exported
    again = ExportConfig(run=str(tiny_model), text=str(some_text), **SMALL | {"prompts": 0})
    with pytest.raises(InputError, match="holds an export already"):
        export_draft(again, out)
    result = export_draft(again, out, force=True)
    assert result.alone.tokens_per_cycle.number is None
    assert "Measured" not in (out / "README.md").read_text()
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_directories_hold_the_packed_matrices(tiny_model, some_text, tmp_path):
    config = ExportConfig(run=str(tiny_model), text=str(some_text), format="compressed-tensors", prompts=0)
    result = export_draft(config, tmp_path / "out")
    assert set(result.engines) == {"transformers", "vLLM", "SGLang"}
    source = load_directory(tiny_model).params["layers"]
    target, draft = (load_directory(tmp_path / "out" / part) for part in ("target", "draft"))
    assert (target.packed, draft.packed) == ({"FP8"}, {"packed integers"})
    config = json.loads((tmp_path / "out" / "draft" / "config.json").read_text())
    size = config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"]
    assert size == min(np.gcd(128, np.asarray(source[kind]).shape[-1]) for kind in ("q", "down"))
    assert size < 128
    assert result.bits_per_weight.value == 4 + 16 / size
    for kind in ("q", "down"):
        matrix = np.asarray(source[kind][0], np.float32)
        columns = matrix.shape[1]
        expected = packed_codes(*int4_groups(matrix, size), columns, bits=4).values().astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.asarray(draft.params["layers"][kind].values()[0]), expected)
        expected = scaled_rows(*fp8_rows(matrix)).values().astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(np.asarray(target.params["layers"][kind].values()[0]), expected)


def test_what_does_not_fit_memory_is_refused_first(tiny_model, some_text, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxspec.studies.export.forms.device_memory_bytes", lambda: 10**6)
    config = ExportConfig(run=str(tiny_model), text=str(some_text), **SMALL)
    with pytest.raises(InputError, match=r"takes about .*, and there are 1 MB; use --prompts 0"):
        export_draft(config, tmp_path / "out")
    assert not any(tmp_path.iterdir())
    export_draft(dataclasses.replace(config, prompts=0), tmp_path / "out")


def test_int4_is_within_half_a_step():
    values = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    values[2, :32] = 0
    words, scales = int4_groups(values, 32)
    assert words.shape == (5, 8)
    error = np.abs(packed_codes(words, scales, 64).values() - values).reshape(5, 2, 32)
    # Only the largest magnitude, of 7.5 steps, may be cut at 7.
    assert (error <= 0.52 * scales.astype(np.float32)[..., None]).all()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"target_type": "fp8"}, "target_type is 'fp8'; as gguf it is one of f16, bf16, q8_0, q4_0"),
        ({"format": "compressed-tensors", "draft_type": "q4_0"}, "draft_type is 'q4_0'; as compressed-tensors"),
        ({"configuration": "tuned"}, "configuration came with a model"),
    ],
)
def test_settings_that_do_not_fit_are_named(tiny_model, tmp_path, more, said):
    with pytest.raises(InputError, match=said):
        export_draft(ExportConfig(run=str(tiny_model), **more), tmp_path / "out")
    assert not any(tmp_path.iterdir())


_ENGINE = """
import json, sys
import xllamacpp as engine

target, draft, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
prompts, count = json.loads(sys.stdin.read())

def server(drafting):
    params = engine.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = target, 512, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if drafting:
        params.speculative.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        own = params.speculative.draft
        own.mparams.path, own.n_max, own.n_min, own.p_min = draft, length, 0, 0.0
    return engine.Server(params)

servers, rows = [server(False), server(True)], []
for ids in prompts:
    asked = {"prompt": ids, "n_predict": count, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    plain, drafted = (each.handle_completions(dict(asked)) for each in servers)
    same = plain["choices"][0]["text"] == drafted["choices"][0]["text"]
    rows.append([drafted["timings"]["draft_n"], drafted["timings"]["draft_n_accepted"], same])
print(json.dumps(rows))
"""


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs xllamacpp, which is llama.cpp")
def test_llama_cpp_accepts_as_many_tokens(tmp_path):
    from jaxspec.settings import CommonConfig
    from jaxspec.studies.measured.checking import check_inputs

    settings = {"prompts": 48, "prompt_tokens": 128, "output_tokens": 64}
    result = export_draft(ExportConfig(run="embedded", draft_length=4, **settings), tmp_path / "out")
    prompts = check_inputs(CommonConfig(model="embedded", architecture="own", **settings)).prompts
    asked = json.dumps([[prompt.tolist() for prompt in prompts], 64])
    files = [str(tmp_path / "out" / f"{part}.gguf") for part in ("target", "draft")]
    ran = subprocess.run(
        [sys.executable, "-c", _ENGINE, *files, "4"], input=asked, capture_output=True, text=True, check=True
    )
    drafted, accepted, same = np.array(json.loads(ran.stdout.splitlines()[-1]), float).T
    share = accepted.sum() / drafted.sum()
    error = np.sqrt(np.sum((accepted - share * drafted) ** 2)) / drafted.sum()
    ours = result.alone
    own_error = ours.tokens_per_cycle.standard_error / 4
    assert same.mean() > 0.9  # greedy text of a cycle of several rows may differ where two logits are next to equal
    assert abs(share - ours.acceptance.alpha_fraction.known) < 3 * np.hypot(error, own_error)
