"""Runs with elastic drafts: on a tiny mixture of experts, on a dense network, and what cannot be done with them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import uneven_network
from finished_runs import write_run

from hwmodels import Case, Routing, baselines
from hwmodels.memory.placement import PLACEMENTS
from hwmodels.networks import ExpertSizes
from jaxspec.compress.footprint import uniform
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, load_directory, save_directory
from jaxspec.models.blocks import Experts
from jaxspec.models.stored import as_computed
from jaxspec.runs import Reporter
from jaxspec.settings import build_config
from jaxspec.studies import EvaluateConfig, ExportConfig, evaluate, export_draft
from jaxspec.studies.export.run import open_run
from jaxspec.studies.measured.pricing import resolve_pricing

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
    tuning = ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")
    return build_config(EvaluateConfig, {k: v for k, v in small.items() if k not in tuning}, given | more)


#: The second is priced by its routers' own choices, on a device with two memories.
RUNS = {1: {"batch": 1}, 3: {"batch": 3, "device": "elmoe3d-hb8", "placement": "by_mode", "routing": "measured"}}


@pytest.fixture(scope="module")
def run_of(mixture, some_text, small, tmp_path_factory):
    """Configuration and result by batch."""

    @functools.cache
    def run(batch):
        given = RUNS[batch] | {"architecture": "qwen3-30b-a3b", "slice_bits": 4, "expert_pool": 0.3}
        config = settings(mixture, some_text, small, **given)
        (result,), _ = evaluate(config, out=str(tmp_path_factory.mktemp("runs") / "run"))
        return config, result.plain()

    return run


@pytest.mark.study
@pytest.mark.parametrize("batch", RUNS)
def test_a_mixture_decodes_as_its_target_and_as_foretold(run_of, batch):
    _, found = run_of(batch)
    assert found["lossless"]["mismatches"] == 0
    given = found["configurations"]["given"]
    assert abs(given["tokens_per_cycle_gap_in_standard_errors"]) < 3
    assert given["tokens_per_cycle_predicted"] == pytest.approx(given["tokens_per_cycle_counted"], rel=1e-6)
    assert given["knobs"]["expert_pool"] == [pytest.approx(0.3)] * 2
    assert given["bits_per_weight"] < given["bits_per_weight_verify"]


@pytest.mark.study
def test_the_routers_choices_are_priced_where_they_are_asked_for(run_of):
    config, found = run_of(3)
    popularity, correlation = found["routing"]["popularity"], found["routing"]["correlation"]
    assert (found["placement"], found["status"]["routing"]) == ("by_mode", "measured")
    assert len(popularity) == 7
    assert sum(popularity) == pytest.approx(1, abs=1e-5)
    assert popularity[0] > 1.2 / 7  # routers of this network are uneven
    assert 0 <= correlation < 1
    # The priced network has 128 experts, whose popularity has these quantiles.
    pricing = resolve_pricing(config, "elmoe3d-hb8", None)
    device = dataclasses.replace(pricing.device, placement=PLACEMENTS["by_mode"]())
    given = found["configurations"]["given"]
    bits = uniform(given["bits_per_weight"], given["bits_per_weight_verify"], 16.0, 16.0)
    parts = {"footprint": bits, "workload": pricing.workload}
    priced = jax.jit(lambda routing: baselines(Case(device, pricing.architecture, routing=routing, **parts)))
    even = jnp.full(7, 1 / 7)
    times = [
        float(priced(Routing(popularity=each, correlation=c)).stored.cost.total_s)
        for each, c in ((jnp.asarray(popularity), correlation), (even, 0.0))
    ]
    ours = given["cycle"]["ar_stored_s"]
    assert ours == pytest.approx(times[0], rel=2e-2)  # kinds of matrices differ a little
    assert abs(ours - times[1]) > 3 * abs(ours - times[0])


@pytest.mark.study(1)
@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("tiny", {}, "routing is 'measured', but .* does not choose among experts; leave it out"),
        (
            "mixture",
            {"architecture": "llama-3.2-1b"},
            "architecture 'llama-3.2-1b' has no routed experts; leave it out",
        ),
        ("mixture", {"placement": "by_mode"}, "placement is 'by_mode', but device 'rtx-4090' has one memory"),
    ],
)
def test_what_has_no_routing_or_placement_is_refused(
    mixture, tiny_model, some_text, small, tmp_path, model, more, message
):
    given = {"architecture": "qwen3-30b-a3b", "routing": "measured"} | more
    config = settings(mixture if model == "mixture" else tiny_model, some_text, small, **given)
    with pytest.raises(InputError, match=message):
        evaluate(config, out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.study
def test_an_export_is_the_rounded_mixture_and_its_draft(mixture, some_text, small, tmp_path):
    config = settings(mixture, some_text, small)
    knobs = uniform_knobs(ELASTIC, TINY, expert_pool=0.5, slice_bits=3.0)
    run = write_run(tmp_path / "run", config, {"given": knobs}, TINY.matrix_kinds)
    export_draft(ExportConfig(run=str(run), prompts=0), tmp_path / "out")
    drafts = open_run(str(run)).drafts(tmp_path / "scratch", Reporter())
    found = [as_computed(load_directory(tmp_path / place).params) for place in ("out/target", "out")]
    same = lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    jax.tree.map(same, found, [drafts.work.setup.params, drafts.params(knobs)])
    assert "chose among a pool of them; here it chooses among all" in (tmp_path / "out" / "README.md").read_text()
