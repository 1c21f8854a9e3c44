"""Runs with elastic drafts: on a tiny mixture of experts, on a dense network, and what cannot be done with them."""

import dataclasses

import pytest
from elastic_networks import uneven_network
from finished_runs import write_run

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, load_directory, save_directory
from jaxspec.models.blocks import Experts
from jaxspec.models.expert_sizes import ExpertSizes
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, evaluate
from jaxspec.studies.export.finished import open_run

TINY = DecoderConfig(
    vocab_size=256,
    hidden_size=16,
    intermediate_size=12,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    qk_norm=True,
    experts=ExpertSizes(num_experts=7, per_token=2, inner_size=10),
    feed_forward=(Experts(),),
)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "mixture"
    save_directory(uneven_network(TINY, 1, sharpness=3.0), TINY, directory, max_positions=128)
    return directory


def settings(model, text, small, **more):
    given = {"model": str(model), "text": str(text), "device": "rtx-4090", "scheme": "elastic", "draft_length": 2}
    tuning = ("steps", "uniform_steps", "windows_per_step")
    return build_config(EvaluateConfig, {k: v for k, v in small.items() if k not in tuning}, given | more)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_mixture_decodes_as_its_target_and_as_foretold(mixture, some_text, small, tmp_path, batch):
    config = settings(
        mixture, some_text, small, architecture="qwen3-30b-a3b", batch=batch, slice_bits=4, expert_pool=0.3
    )
    (result,), _ = evaluate(config, out=str(tmp_path / "run"))
    found = result.plain()
    assert found["lossless"]["mismatches"] == 0
    given = found["configurations"]["given"]
    assert abs(given["tokens_per_cycle_gap_in_standard_errors"]) < 3
    assert given["knobs"]["expert_pool"] == [pytest.approx(0.3)] * 2
    assert given["bits_per_weight"] < given["bits_per_weight_verify"]


def test_a_dense_network_says_that_it_has_no_pools(tiny_model, some_text, small, tmp_path, capsys):
    config = settings(tiny_model, some_text, small, slice_bits=5)
    (result,), _ = evaluate(config, out=str(tmp_path / "run"), reporter=Reporter())
    assert result.plain()["lossless"]["mismatches"] == 0
    said = capsys.readouterr()
    assert "has no experts; expert_pool changes nothing" in " ".join((said.out + said.err).split())


def test_its_draft_is_not_exported(tiny_model, some_text, small, tmp_path):
    config = settings(tiny_model, some_text, small)
    knobs = uniform_knobs(ELASTIC, load_directory(tiny_model).config)
    run = write_run(tmp_path / "run", dataclasses.replace(config), {"given": knobs})
    with pytest.raises(InputError, match="a target that scheme elastic changes"):
        open_run(str(run))
