"""Medusa heads from files as releases have them, against what they compute, written by hand; and files that are refused."""

import io
import json
import pickle
import sys
import types
import zipfile
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text, init_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.medusa_heads import PickledFiles
from jaxspec.speculate.drafts import Committed, Level, Root, check_draft, make_draft

TARGET = DecoderConfig(
    vocab_size=13, hidden_size=12, intermediate_size=9, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4
)
HEADS, BLOCKS = 3, 2
RNG = np.random.default_rng(1)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    save_directory(init_params(TARGET, jax.random.key(1)), TARGET, folder, max_positions=64)
    return folder


def tensors(bias=True):
    """Names as Medusa's own releases have them."""
    drawn = lambda *shape: (shape[-1] ** -0.5 * RNG.standard_normal(shape)).astype(np.float16)
    found = {}
    for head in range(HEADS):
        for block in range(BLOCKS):
            found[f"{head}.{block}.linear.weight"] = drawn(12, 12)
            found |= {f"{head}.{block}.linear.bias": drawn(12)} if bias else {}
        found[f"{head}.{BLOCKS}.weight"] = drawn(13, 12)
    return found


def of_vllm(found):
    renamed = {}
    for name, value in found.items():
        head, block, *part = name.split(".")
        inner = part[0] == "linear"
        renamed[f"blocks.{head}.layers.{block}.{part[1]}" if inner else f"lm_heads.{head}.weight"] = value
    return renamed


class _Value:
    """A tensor, as torch's `__reduce_ex__` describes it."""

    def __init__(self, array, key, stride=None):
        self.array, self.key, self.stride = array, key, stride

    def __reduce__(self):
        shape = self.array.shape
        rows = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        torch = sys.modules["torch._utils"]
        return torch._rebuild_tensor_v2, (_Stored(self.key), 0, shape, self.stride or rows, False, OrderedDict())


class _Stored:
    def __init__(self, key):
        self.key = key


def write_pt(path, found, monkeypatch, extra=None, stride=None):
    """As `torch.save` writes a state dict, by modules of torch's names."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    half = type("HalfStorage", (), {"__module__": "torch"})
    vars(torch)["HalfStorage"] = half

    def _rebuild_tensor_v2():
        raise AssertionError

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    vars(utils)["_rebuild_tensor_v2"] = _rebuild_tensor_v2
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        patch.setitem(sys.modules, "torch._utils", utils)

        class Writer(pickle.Pickler):
            def persistent_id(self, value):
                return ("storage", half, value.key, "cpu", 1) if isinstance(value, _Stored) else None

        described = OrderedDict((name, _Value(a, str(n), stride)) for n, (name, a) in enumerate(found.items()))
        out = io.BytesIO()
        Writer(out, protocol=2).dump({**described, **(extra or {})} if extra else described)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", out.getvalue())
        for number, array in enumerate(found.values()):
            archive.writestr(f"archive/data/{number}", array.tobytes())


def written(folder, found, form, monkeypatch, raw=None):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw or {"medusa_num_heads": HEADS, "medusa_num_layers": BLOCKS}))
    if form == "pt":
        write_pt(folder / "medusa_lm_head.pt", found, monkeypatch)
    else:
        save_file(found, folder / ("model.safetensors" if form == "vllm" else "medusa_lm_head.safetensors"))
    return str(folder)


@pytest.mark.parametrize("form", ["pt", "safetensors", "vllm", "own"])
def test_each_head_predicts_one_token_further(target, tmp_path, form, monkeypatch):
    found = tensors(bias=form != "vllm")
    loaded = load_directory(target)
    if form == "own":
        save_file(
            {f"medusa_head.{name}": value for name, value in found.items()}, target / "medusa_lm_head.safetensors"
        )
        name = "medusa"
    else:
        name = written(tmp_path / "heads", of_vllm(found) if form == "vllm" else found, form, monkeypatch)
    assert not check_draft(name, TARGET, str(target))
    ready = make_draft(name, loaded)
    assert ready.draft.num_parameters(ready.params) == sum(value.size for value in found.values())
    text = np.array([[3, 5, 1, 7, 12, 2]], np.int32)
    hidden = forward_text(loaded.params, TARGET, jnp.asarray(text)).hidden
    draft, params = ready
    memory = draft.empty(params, 1, 20, 20)
    empty = jnp.zeros((2, 1, 2, 5, 4))
    cache = KVCache(empty, empty)
    # The last token is the root, of which the target knows nothing yet.
    last = jnp.array([5])
    memory = draft.commit(
        params, memory, Committed(jnp.asarray(text[:, 1:]), hidden[:, :5], cache, jnp.array([0]), jnp.array([3]), last)
    )
    state = np.asarray(hidden[0, 4], np.float64)
    state = state / np.sqrt(np.mean(state**2) + TARGET.norm_eps) * np.asarray(loaded.params["final_norm"], np.float64)

    def by_hand(head):
        x = state
        for block in range(BLOCKS):
            product = found[f"{head}.{block}.linear.weight"].astype(np.float64) @ x
            product = product + found.get(f"{head}.{block}.linear.bias", np.zeros(12))
            x = x + product / (1 + np.exp(-product))
        return found[f"{head}.{BLOCKS}.weight"].astype(np.float64) @ x

    root = Root(jnp.array([2]), jnp.array([5]))
    logits, memory = draft.open(params, memory, root)
    np.testing.assert_allclose(logits[0], by_hand(0), rtol=2e-4, atol=2e-4)
    tokens, depth, parent = (jnp.array([row]) for row in ([4, 6], [1, 2], [0, 1]))
    level = Level(tokens, jnp.int32(1), depth, parent, jnp.zeros((1, 2, 3), bool))
    after, memory = draft.extend(params, memory, root, level)
    for place in (0, 1):
        np.testing.assert_allclose(after[0, place], by_hand(1 + place), rtol=2e-4, atol=2e-4)
    behind, _ = draft.extend(params, memory, root, level._replace(depth=jnp.array([[3, 4]])))
    np.testing.assert_array_equal(behind, 0)


def run(*_):
    raise AssertionError("a description ran code")


class _Harmful:
    def __reduce__(self):
        return run, ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"extra": {"a": _Harmful()}}, "it names"),
        ({"extra": {"a": 3}}, "it is no dictionary of tensors"),
        ({"stride": (1, 13)}, "a tensor that is not stored row by row"),
    ],
)
def test_a_pickled_file_is_read_for_tensors_alone(tmp_path, monkeypatch, more, said):
    write_pt(tmp_path / "medusa_lm_head.pt", tensors(), monkeypatch, **more)
    with pytest.raises(InputError, match=f"{said}.* convert it to safetensors") as error:
        PickledFiles(tmp_path / "medusa_lm_head.pt")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda found: {k: v for k, v in found.items() if k != "1.0.linear.weight"},
            r"no tensor '1\.0\.linear\.weight'",
        ),
        (lambda found: found | {"0.2.weight": found["0.2.weight"][:9]}, r"has shape \(9, 12\); .* needs \(13, 12\)"),
        (lambda found: found | {"norm.weight": np.ones(12, np.float16)}, r"has tensor 'norm\.weight'"),
        (lambda found: {"a": np.ones(3, np.float16)}, "no tensors of Medusa heads"),
    ],
)
def test_heads_that_do_not_fit_are_refused(target, tmp_path, change, said, monkeypatch):
    folder = written(tmp_path / "heads", change(tensors()), "safetensors", monkeypatch)
    with pytest.raises(InputError, match=said):
        check_draft(folder, TARGET, str(target))
