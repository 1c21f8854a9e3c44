"""A checkpoint in float16 from tuning to its file: its draft is a part of its own bits, and its KV cache is in float16."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.compress.kv import rounded_kv, stored_kv
from jaxspec.errors import InputError
from jaxspec.formats.container import Container
from jaxspec.models import DecoderConfig, init_params, load_container, load_directory, save_directory
from jaxspec.models.decoder import forward_text
from jaxspec.settings import build_config
from jaxspec.studies import (
    EvaluateConfig,
    ExportConfig,
    TuneConfig,
    evaluate,
    export_draft,
    tune,
)
from jaxspec.studies.pack.run import PackConfig, pack_checkpoint, unpack_container

pytestmark = pytest.mark.study

#: Mantissa bits that only float16 has as many of.
CUT = 9

#: Matrices so large that dividing each makes it smaller.
WIDE = DecoderConfig(
    vocab_size=256, hidden_size=48, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=12
)


def write_half(folder, like, network):
    """The network's matrices in float16, as bfloat16 would not hold them, under the names that a directory has."""
    save_directory(network, like, folder, max_positions=128)
    exact = {name: np.asarray(value) for name, value in load_file(folder / "model.safetensors").items()}
    rng = np.random.default_rng(7)
    stored = {
        name: (x.astype(np.float32) * rng.uniform(0.99, 1.01, x.shape)).astype(np.float16) for name, x in exact.items()
    }
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return stored


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    folder = tmp_path_factory.mktemp("half") / "half"
    params = jax.tree.map(lambda x: 2.0 * x if x.ndim > 2 else x, init_params(WIDE, jax.random.key(3)))
    stored = write_half(folder, WIDE, params)
    low = np.concatenate([x.view(np.uint16).ravel() & 7 for x in stored.values()])
    assert (low != 0).mean() > 0.8  # bits that bfloat16 lacks
    return folder


@pytest.fixture(scope="module")
def shared(half, some_text, small):
    return dict(small) | {"model": str(half), "text": str(some_text), "device": "rtx-4090"}


def settings_of(kind, shared):
    """Those that a study has."""
    return {name: value for name, value in shared.items() if name in kind.__dataclass_fields__}


@pytest.fixture(scope="module")
def tuned(shared, tmp_path_factory):
    config = build_config(TuneConfig, shared, {"steps": 2, "uniform_steps": 2})
    return tune(config, out=str(tmp_path_factory.mktemp("runs") / "tuned"))


@pytest.fixture(scope="module")
def given(shared, tmp_path_factory):
    knobs = {"weight_prune": 0.3, "weight_cut_bits": CUT, "kv_prune": 0.25, "kv_cut_bits": CUT, "draft_length": 3}
    config = build_config(EvaluateConfig, settings_of(EvaluateConfig, shared), knobs)
    return evaluate(config, out=str(tmp_path_factory.mktemp("runs") / "given"))


@pytest.fixture(scope="module")
def packed(given, half, tmp_path_factory):
    """The evaluated draft in a container."""
    path = tmp_path_factory.mktemp("packed") / "half.jspk"
    pack_checkpoint(PackConfig(model=str(half), knobs=str(given[1].path / "result.json")), str(path))
    return path


def exported(run, folder):
    export_draft(ExportConfig(run=str(run[1].path), prompts=0), folder)
    return {name: np.asarray(value) for name, value in load_file(folder / "model.safetensors").items()}


def assert_part_of(half, draft, cuts):
    """Each value of a draft's matrices is 0, or the target's without so many low bits, by NumPy alone."""
    target = load_file(half / "model.safetensors")
    changed = 0
    for name, value in draft.items():
        assert value.dtype == np.float16
        own, bits = np.asarray(target[name]).view(np.uint16), value.view(np.uint16)
        np.testing.assert_array_equal(bits & ~own, 0)
        cut = cuts.get(name.split(".")[-2])
        if cut is None or value.ndim < 2 or "layers" not in name:
            np.testing.assert_array_equal(bits, own)
            continue
        cut = cut[int(name.split(".")[2])]
        kept = bits != 0
        np.testing.assert_array_equal(bits[kept], (own >> cut << cut)[kept])
        changed += int((bits != own).sum())
    assert changed


def cuts_of(result, knobs="given"):
    """Projection -> cut bits of each layer."""
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    found = result.plain()["configurations"][knobs]["knobs"]["weight_cut_bits"]
    return {names.get(kind, f"{kind}_proj"): [int(value) for value in values] for kind, values in found.items()}


def test_a_tuned_draft_is_a_part_of_the_float16_target(tuned, half, tmp_path):
    result = tuned[0][0]
    # The grid leaves the same mantissas as that of bfloat16: 7 to 2 of 10 bits.
    assert {point.knobs["weight_cut_bits"].value for point in result.grid} == {3, 4, 5, 6, 7, 8}
    assert result.lossless.mismatches.value == 0
    assert_part_of(half, exported(tuned, tmp_path / "draft"), cuts_of(result, "tuned"))


def test_a_container_gives_back_the_patterns_and_the_same_draft(given, packed, half, tmp_path):
    unpack_container(str(packed), str(tmp_path / "back"))
    original, back = (load_file(folder / "model.safetensors") for folder in (half, tmp_path / "back"))
    assert original.keys() == back.keys()
    for name, value in original.items():
        np.testing.assert_array_equal(np.asarray(back[name]).view(np.uint16), np.asarray(value).view(np.uint16))
    with Container(packed) as container:
        codings = [tensor.coding for tensor in container.tensors.values() if "cut_bits" in tensor.coding]
    assert len(codings) == 14  # seven matrices of two layers
    assert {coding["cut_bits"] for coding in codings} == {CUT}
    read, draft = load_container(packed, part="draft"), exported(given, tmp_path / "draft")
    for name, number in (("q", "self_attn.q_proj"), ("down", "mlp.down_proj")):
        for layer in range(2):
            np.testing.assert_array_equal(
                np.asarray(read.params["layers"][name][layer]).view(np.uint16),
                draft[f"model.layers.{layer}.{number}.weight"].view(np.uint16),
            )


def test_the_cache_is_float16_and_nearer_to_float32_than_bfloat16_is(half):
    loaded = load_directory(half)
    tokens = jnp.asarray(np.random.default_rng(8).integers(0, 256, (3, 40)), jnp.int32)
    run = lambda codec: forward_text(loaded.params, loaded.config, tokens, kv_codec=codec)
    exact, own = run(None), run(stored_kv(loaded.config))
    bfloat16 = run(rounded_kv(dataclasses.replace(loaded.config, stored_dtype="bfloat16")))
    for part in (own.cache.key, own.cache.value):
        values = np.asarray(part)
        np.testing.assert_array_equal(values, values.astype(np.float16).astype(np.float32))
        assert (values != values.astype(ml_dtypes.bfloat16).astype(np.float32)).mean() > 0.5
    far = lambda result: float(np.sqrt(np.mean(np.square(np.asarray(result.logits) - np.asarray(exact.logits)))))
    # Three mantissa bits more: eight times as near.
    assert far(own) * 4 < far(bfloat16)
    assert far(own) > 0


def test_knobs_of_a_file_and_of_packing_are_checked_by_the_type(given, tiny_model, half, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = str(given[1].path / "result.json")
    with pytest.raises(InputError, match="weight_cut_bits is 9; allowed is 0 to 7, the mantissa bits of bfloat16"):
        pack_checkpoint(PackConfig(model=str(tiny_model), knobs=result), "out.jspk")
    with pytest.raises(InputError, match=r"is stored in BF16: knob weight_cut_bits is 8; allowed is 0 to 7"):
        pack_checkpoint(PackConfig(model=str(tiny_model), weight_cut_bits=8, importance="magnitude"), "out.jspk")
    with pytest.raises(InputError, match=r"is stored in BF16: knob head_cut_bits is 9; allowed is 0 to 7"):
        pack_checkpoint(PackConfig(model=str(tiny_model), scheme="cassandra1-head", head_cut_bits=9), "out.jspk")
    assert list(tmp_path.iterdir()) == []
    pack_checkpoint(PackConfig(model=str(half), weight_cut_bits=10, importance="magnitude"), "out.jspk")
    unpack_container("out.jspk", "back")
    original, back = (load_file(folder / "model.safetensors") for folder in (half, tmp_path / "back"))
    assert all(np.asarray(back[name]).tobytes() == np.asarray(value).tobytes() for name, value in original.items())
