"""A network with linear attention and experts: tuned, measured, and decoded without loss by chains and trees."""

import pytest
from tiny_hybrids import WITH_EXPERTS, saved

from jaxspec.models import load_directory
from jaxspec.settings import build_config
from jaxspec.studies import TuneConfig, tune

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def shared(tmp_path_factory, some_text, small):
    directory = saved(WITH_EXPERTS, tmp_path_factory.mktemp("models") / "experts")
    assert load_directory(directory).config == WITH_EXPERTS
    others = {"text": some_text, "device": "rtx-4090", "architecture": "qwen3-next-80b-a3b"}
    return dict(small) | {"model": str(directory)} | {name: str(value) for name, value in others.items()}


def test_what_is_tuned_is_decoded_without_loss_as_it_was_measured(shared, tmp_path):
    config = build_config(TuneConfig, shared, {"steps": 2, "uniform_steps": 2})
    result = tune(config, out=str(tmp_path / "tuned"))[0][0]
    assert result.lossless.mismatches.value == 0
    found = result.plain()["configurations"]["tuned"]
    attention = {"q", "k", "v", "o", "in_qkv", "in_z", "out"}
    feed_forward = {f"{part}_{kind}" for part in ("expert", "shared") for kind in ("gate", "up", "down")}
    assert set(found["knobs"]["weight_cut_bits"]) == attention | feed_forward
    assert abs(found["tokens_per_cycle_gap_in_standard_errors"]) < 3
