"""Placement, routing and pools of experts in predictions and sweeps, against the hardware models."""

import importlib

import jax
import numpy as np
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.decoders.decoder import PLACES
from hwmodels.memory.placement import PLACEMENTS
from hwmodels.network.routing import zipf_routing
from hwmodels.speculation.draft_cost import fitting_pool
from jaxspec.compress.footprint import uniform
from jaxspec.errors import InputError
from jaxspec.report.assumptions import device_facts
from jaxspec.settings import CommonConfig
from jaxspec.settings.common import DecoderPlace, PlacementSettings
from jaxspec.settings.fields import choices_of
from jaxspec.studies import predict, sweep
from jaxspec.studies.engine_pricing import placed, with_expert_bits
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.predict.result import PredictResult
from jaxspec.studies.predict.view import prediction_tables
from jaxspec.studies.sweep import grid
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.points_file import read_sweep

pytestmark = pytest.mark.study

# The packages have functions of these names.
predicting = importlib.import_module("jaxspec.studies.predict.run")

GIVEN = {
    "architecture": "gpt-oss-20b",
    "device": "elmoe3d-hb4",
    "scheme": "elastic",
    "placement": "by_mode",
    "pool_fits": True,
    "expert_bits": 4.25,
    "expert_skew": 0.6,
    "expert_correlation": 0.4,
}
PARTS = {
    "workload": hwmodels.Workload(batch=4.0, context_tokens=1024.0),
    "footprint": with_expert_bits(uniform(4.5, 8.5), 4.25),
    "routing": zipf_routing(0.6, num_experts=32.0, experts_per_token=4.0, entries=32, correlation=0.4),
}


@pytest.fixture(scope="module")
def expected():
    """One chain of 3, and the pool that fits, by the cost model itself."""

    @jax.jit
    def priced(device, network, parts):
        pool = fitting_pool(device, network, **parts)
        acceptance = hwmodels.Acceptance(np.full(3, 0.8, np.float32))
        draft = hwmodels.DraftCost(pool_experts=pool)
        return pool, hwmodels.priced_chains(hwmodels.Case(device, network, draft=draft, **parts), acceptance).result

    device = catalog.device("elmoe3d-hb4").replace(placement=PLACEMENTS["by_mode"]())
    pool, result = priced(device, catalog.architecture("gpt-oss-20b"), PARTS)
    return float(pool), result


def test_a_whole_prediction_is_that_of_the_cost_model(expected):
    _hold(expected)


def test_a_prediction_is_that_of_the_cost_model(expected, monkeypatch):
    # Derivatives by all numbers of the device take most of the time; other predictions test them.
    monkeypatch.setattr(predicting, "_slopes", lambda *_: {})
    _hold(expected)


def _hold(expected):
    (found,) = predict(batch=4, acceptance="0.8,0.8,0.8", **GIVEN)
    pool, result = expected
    times = [row.cycle_s.number for row in found.by_draft_length]
    np.testing.assert_allclose(times, result.cycle_s, rtol=1e-5)
    use = found.experts
    assert use.draft_pool.number == pytest.approx(pool, rel=1e-5)
    assert 4 < pool < 32
    # A pool that fits is never left; a verification reads more experts, and some of them outside.
    assert use.read_from_first_memory.value["draft"] == pytest.approx(1.0, abs=1e-4)
    assert 0 < use.read_from_first_memory.value["verify"] < 1
    assert use.touched.value["draft"] < pool < 32
    assert use.touched.value["verify"] > use.touched.value["ar_stored"]
    assert (found.placement.value, found.placement.status) == ("by_mode", "input")
    plain = found.plain()
    assert PredictResult.from_plain(plain) == found
    (_, steps, *_) = prediction_tables([found])
    assert "experts of a layer touched" in steps.caption
    assert f"of {pool:.4g}" in steps.caption


def test_points_of_a_sweep_are_those_of_the_cost_model(tmp_path, expected, monkeypatch):
    monkeypatch.setattr(grid, "CHUNK", 2)  # the others of a call would repeat the last point
    pool, result = expected
    given = GIVEN | {"architecture": ("gpt-oss-20b",), "device": ("elmoe3d-hb4",)}
    axes, rate = {"routing.correlation": [0.4, 0.9], "workload.batch": [4.0]}, {"acceptance.alpha_token": 0.8}
    config = SweepConfig(axes=axes, set=rate, max_draft_length=3, **given)
    sweep(config, out=tmp_path / "fits")
    found = read_sweep(tmp_path / "fits")
    best = float(np.max(result.speedup_vs_bf16_ar))
    assert found["speedup_vs_bf16_ar"][0] == pytest.approx(best, rel=1e-4)
    # Tokens that agree touch fewer experts.
    assert found["tokens_per_s"][1] > found["tokens_per_s"][0]
    # The same pool, as an axis.
    config = SweepConfig(
        axes={"draft.expert_pool": [(pool - 4.0) / 28.0, 1.0]},
        set={"workload.batch": 4.0} | rate,
        max_draft_length=3,
        **(given | {"pool_fits": False}),
    )
    sweep(config, out=tmp_path / "axis")
    assert read_sweep(tmp_path / "axis")["speedup_vs_bf16_ar"][0] == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "elastic", "pool_fits": True}, "pool_fits came, but architecture 'llama-3.2-1b' has no routed"),
        ({"expert_skew": 0.5, "expert_bits": 4.0}, "expert_bits, expert_skew came"),
        ({"architecture": "gpt-oss-20b", "scheme": "elastic", "expert_pool": 1.1}, "expert_pool is 1.1; allowed is 0"),
        ({"architecture": "gpt-oss-20b", "expert_pool": 0.3}, "expert_pool would have no effect: scheme cassandra1"),
        ({"architecture": "gpt-oss-20b", "pool_fits": True}, "pool_fits would have no effect: the draft of scheme"),
        (
            {"architecture": "gpt-oss-20b", "scheme": "elastic", "pool_fits": True, "expert_pool": 0.3},
            "expert_pool would have no effect: pool_fits says",
        ),
        ({"architecture": "gpt-oss-20b", "expert_correlation": 1.5}, "expert_correlation is 1.5; allowed is 0 to 1"),
        ({"placement": "by_mode"}, "placement is 'by_mode', but device 'rtx-4090' has one memory"),
        ({"decoder_place": "l2"}, "decoder_place is 'l2', but device 'rtx-4090' has no decoders; leave decoder_place"),
        ({"decoder_place": "l3"}, "decoder_place is 'l3'.*allowed are dma, l2, array_edge"),
        ({"placement": "hot_first"}, r"placement is 'hot_first'.*allowed are in_order"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message) as caught:
        predict(**({"architecture": "llama-3.2-1b", "device": "rtx-4090"} | settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_the_place_of_decoders_is_a_setting_that_results_state(place):
    config = PlacementSettings(decoder_place=place)
    pricing = placed(resolve_pricing(CommonConfig(), "cassandra-gpu", None), config, "cassandra-gpu")
    assert pricing.device.decoder.place == place
    said = " ".join(device_facts("cassandra-gpu", PredictConfig(decoder_place=place))["assumptions"])
    words = {"dma": "decoders in the DMA", "l2": "decoders between L2", "array_edge": "decoders at the array's edge"}
    assert [name for name in PLACES if words[name] in said] == [place]
    assert choices_of(DecoderPlace) == tuple(PLACES)
