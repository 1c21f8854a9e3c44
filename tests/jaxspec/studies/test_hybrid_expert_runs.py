"""A network with linear attention and experts: tuned, measured, and decoded without loss by chains and trees."""

import jax
import pytest

from jaxspec.models import DecoderConfig, init_params, load_directory, save_directory
from jaxspec.models.blocks import Experts, GatedDeltaNet, GroupedAttention
from jaxspec.models.expert_sizes import ExpertSizes
from jaxspec.models.linear_sizes import LinearSizes
from jaxspec.settings import build_config
from jaxspec.studies import TreeConfig, TuneConfig, search_tree, tune

pytestmark = pytest.mark.usefixtures("compile_quickly")

TINY = DecoderConfig(
    vocab_size=256,
    hidden_size=24,
    intermediate_size=12,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rotary_dim=2,
    norm="shifted_rms",
    norm_eps=1e-6,
    qk_norm=True,
    attention_gate=True,
    linear=LinearSizes(key_heads=2, value_heads=4, key_dim=6, value_dim=5, conv_tokens=4),
    attention=(GatedDeltaNet(), GroupedAttention()),
    experts=ExpertSizes(num_experts=6, per_token=2, inner_size=12, shared_size=10, shared_gated=True),
    feed_forward=(Experts(),),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, some_text, small):
    directory = tmp_path_factory.mktemp("models") / "experts"
    params = jax.tree.map(lambda x: 3.0 * x if x.ndim > 2 else x, init_params(TINY, jax.random.key(3)))
    save_directory(params, TINY, directory, max_positions=128)
    assert load_directory(directory).config == TINY
    others = {"text": some_text, "device": "rtx-4090", "architecture": "qwen3-next-80b-a3b"}
    return dict(small) | {"model": str(directory)} | {name: str(value) for name, value in others.items()}


def settings_of(kind, shared):
    return {name: value for name, value in shared.items() if name in kind.__dataclass_fields__}


def test_what_is_tuned_is_decoded_without_loss_as_it_was_measured(shared, tmp_path):
    config = build_config(TuneConfig, shared, {"steps": 2, "uniform_steps": 2})
    result = tune(config, out=str(tmp_path / "tuned"))[0][0]
    assert result.lossless.mismatches.value == 0
    found = result.plain()["configurations"]["tuned"]
    attention = {"q", "k", "v", "o", "in_qkv", "in_z", "out"}
    feed_forward = {f"{part}_{kind}" for part in ("expert", "shared") for kind in ("gate", "up", "down")}
    assert set(found["knobs"]["weight_cut_bits"]) == attention | feed_forward
    assert abs(found["tokens_per_cycle_gap_in_standard_errors"]) < 3


@pytest.mark.parametrize("scheme", ["cassandra1", "elastic"])
def test_trees_are_lossless(scheme, shared, tmp_path):
    config = build_config(TreeConfig, settings_of(TreeConfig, shared), {"scheme": scheme, "nodes": 4, "depth": 2})
    result = search_tree(config, out=str(tmp_path / "run"))[0][0]
    assert result.lossless.mismatches.value == 0
