"""Runs whose drafts have an LM head of their own: decoded as predicted, tuned, priced and exported."""

import dataclasses
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finished_runs import write_run
from safetensors.numpy import load_file

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import find_scheme
from jaxspec.models import init_params, load_directory, save_directory
from jaxspec.models.decoder import forward_text
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.settings.schemes import KNOBS
from jaxspec.studies import (
    EvaluateConfig,
    ExportConfig,
    TuneConfig,
    evaluate,
    export_draft,
    tune,
)
from jaxspec.studies.export.run import open_run

pytestmark = pytest.mark.study

tune_module = importlib.import_module("jaxspec.studies.tune.run")

SCHEME = "cassandra1-head"
TUNING = ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")
HEAD_KNOBS = {"head_prune": 0.3, "head_cut_bits": 5}


@pytest.fixture(scope="module")
def tied_model(tiny_model, tmp_path_factory):
    """A network whose head is its embedding."""
    config = dataclasses.replace(load_directory(tiny_model).config, tie_embeddings=True)
    params = jax.tree.map(lambda x: 3.0 * x if x.ndim > 2 else x, init_params(config, jax.random.key(3)))
    folder = tmp_path_factory.mktemp("models") / "tied"
    # A head of unit scale, so that tokens differ in their chances.
    save_directory(params | {"embed": 12.0 * params["embed"]}, config, folder, max_positions=128)
    return folder


def settings(kind, model, text, small, **more):
    given = {"model": str(model), "text": str(text), "device": "jetson-agx-orin", "scheme": SCHEME}
    if kind is EvaluateConfig:
        given["draft_length"], small = 2, {k: v for k, v in small.items() if k not in TUNING}
    return build_config(kind, small, given | more)


@pytest.mark.parametrize("scheme", [SCHEME, "cassandra2-head"])
def test_a_tied_network_decodes_its_own_text_as_foretold(tied_model, some_text, small, tmp_path, scheme):
    config = settings(EvaluateConfig, tied_model, some_text, small, scheme=scheme, **HEAD_KNOBS)
    (result,), _ = evaluate(config, out=str(tmp_path / "run"))
    found = result.plain()
    assert found["lossless"]["tokens"] > 0
    assert found["lossless"]["mismatches"] == 0
    given = found["configurations"]["given"]
    assert given["tokens_per_cycle_predicted"] == pytest.approx(given["tokens_per_cycle_counted"])
    assert 1 < given["bits_per_head_weight"] < given["bits_per_head_weight_verify"] < 16
    assert given["knobs"]["head_cut_bits"] == 5


def test_tuning_moves_the_head_with_everything_else(tiny_model, some_text, small, tmp_path, monkeypatch):
    ends = []
    watched = lambda *of, ascend=tune_module.ascend, **more: ends.append(ascend(*of, **more)) or ends[-1]
    monkeypatch.setattr(tune_module, "ascend", watched)
    (result,), _ = tune(settings(TuneConfig, tiny_model, some_text, small), out=str(tmp_path / "run"))
    found = result.plain()
    assert found["lossless"]["mismatches"] == 0
    for one in found["configurations"].values():
        assert one["tokens_per_cycle_predicted"] == pytest.approx(one["tokens_per_cycle_counted"])
        assert isinstance(one["knobs"]["head_prune"], float)
    # The grid is the paper's, which has no knob of the head.
    assert {"weight_prune", "weight_cut_bits"} == set(found["grid"][0]) & set(KNOBS)
    assert len(ends) in (2, 3)  # a pair that prunes nothing begins an ascent of its own
    for end in ends:
        for name in ("head_prune", "head_cut_bits"):
            spec = KNOBS[name]
            last = spec.low + (spec.high - spec.low) * float(end.path[name][-1])
            assert abs(last - spec.default) > 0.01
    assert "bits per weight of the LM head, draft" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("tie", [False, True])
def test_an_exported_draft_has_the_head_of_the_hard_draft(tiny_model, tied_model, some_text, small, tmp_path, tie):
    model = tied_model if tie else tiny_model
    network = load_directory(model).config
    knobs = uniform_knobs(find_scheme(SCHEME), network, draft_length=3, **HEAD_KNOBS)
    run = write_run(tmp_path / "run", settings(TuneConfig, model, some_text, small), {"tuned": knobs})
    result = export_draft(ExportConfig(run=str(run)), tmp_path / "draft")
    drafts = open_run(str(run)).drafts(tmp_path / "scratch", Reporter())
    exported, expected = load_directory(tmp_path / "draft"), drafts.params(knobs)
    assert not exported.config.tie_embeddings
    same = lambda a, b: np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
    jax.tree.map(same, expected, as_computed(exported.params))
    assert json.loads((tmp_path / "draft" / "config.json").read_text())["tie_word_embeddings"] is False
    heads = [load_file(folder / "model.safetensors").get("lm_head.weight") for folder in (tmp_path / "draft", model)]
    assert (heads[1] is None) == tie
    assert heads[0].shape == (network.vocab_size, network.hidden_size)
    assert result.alone.tokens_per_cycle.value >= 1
    assert "LM head is pruned and cut as well" in (tmp_path / "draft" / "README.md").read_text()
    text = jnp.arange(12)[None]
    logits = [forward_text(params, network, text).logits for params in (expected, exported.params)]
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4)
