"""Runs on quantized networks: decoding is greedy decoding of the quantized target, and there is nothing to tune."""

import jax
import numpy as np
import pytest

from jaxspec.compress.schemes import find_scheme
from jaxspec.models import load_directory
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, TuneConfig, evaluate, tune
from jaxspec.studies.measured.run_context import load_inputs

pytestmark = pytest.mark.study

TUNING = ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")


def settings(kind, model, text, small, **more):
    given = {"model": str(model), "text": str(text), "device": "rtx-4090"}
    if kind is EvaluateConfig:
        given["draft_length"], small = 2, {k: v for k, v in small.items() if k not in TUNING}
    return build_config(kind, small, given | more)


def test_the_target_is_the_quantized_network(tiny_model, some_text, small):
    setup = load_inputs(settings(EvaluateConfig, tiny_model, some_text, small, scheme="q4_0-down8"))
    float_layers = load_directory(tiny_model).params["layers"]
    scheme = find_scheme("q4_0-down8")
    for kind in ("up", "down"):
        wanted = scheme.of_kind(kind).matrix.target(jax.numpy.asarray(float_layers[kind]))
        np.testing.assert_array_equal(setup.params["layers"][kind].values(), wanted)
    assert any("the target is the network as q4_0-down8 stores it" in note for note in setup.notes)


def test_speculation_equals_decoding_of_the_quantized_target(tiny_model, some_text, small, tmp_path):
    config = settings(EvaluateConfig, tiny_model, some_text, small, scheme="tile-q4_0-down8")
    (result,), _ = evaluate(config, out=str(tmp_path / "run"))
    found = result.plain()
    assert found["lossless"]["tokens"] > 0
    assert found["lossless"]["mismatches"] == 0
    given = found["configurations"]["given"]
    # The draft is the target.
    assert given["acceptance"]["alpha_token"] > 0.98
    assert given["bits_per_weight"] == pytest.approx(given["bits_per_weight_verify"])


def test_tuning_chooses_the_draft_length_alone(tiny_model, some_text, small, tmp_path):
    (result,), _ = tune(
        settings(TuneConfig, tiny_model, some_text, small, scheme="int4-channel"), out=str(tmp_path / "run")
    )
    found = result.plain()
    assert found["lossless"]["mismatches"] == 0
    assert all(one["knobs"].keys() <= {"draft_length"} for one in found["configurations"].values())
