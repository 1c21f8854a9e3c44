import dataclasses
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxspec.errors import InputError
from jaxspec.models import embedded
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.draft_head import (
    abstract_head_params,
    head_forward,
    head_logits,
    target_ends,
)
from jaxspec.models.head_files import load_head, save_head, weights_sha256
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory

pytestmark = pytest.mark.network

TARGET = DecoderConfig(
    vocab_size=13, hidden_size=12, intermediate_size=10, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)
# Its own sizes inside, the target's outside.
HEAD = dataclasses.replace(TARGET, num_layers=1, num_heads=3, num_kv_heads=1, head_dim=4, intermediate_size=7)


def bfloat16_values(abstract, seed):
    """Random parameters that survive storage in bfloat16."""
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray((0.4 * rng.standard_normal(leaf.shape)).astype(jnp.bfloat16).astype(np.float32))
    return jax.tree.map(draw, abstract)


@pytest.fixture(scope="module")
def head():
    return bfloat16_values(abstract_head_params(HEAD), 1)


@pytest.fixture(scope="module")
def target_params():
    return bfloat16_values(abstract_params(TARGET), 2)


def unit(x):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)


def silu(x):
    return x / (1 + np.exp(-x))


def test_one_place_by_hand(head, target_params):
    # One place alone attends to itself with weight 1, so that attention is its value, once per query head, through `o`.
    token, rng = 5, np.random.default_rng(3)
    hidden = rng.standard_normal(12).astype(np.float32)
    ends = target_ends(target_params)
    w = jax.tree.map(lambda leaf: np.asarray(leaf[0], np.float64), head["layers"])
    embedded_token = unit(np.asarray(ends.embed[token], np.float64)) * np.asarray(head["embed_norm"])
    x = np.asarray(head["fc"], np.float64) @ np.concatenate([embedded_token, unit(hidden) * head["hidden_norm"]])
    value = w["v"] @ (unit(x) * w["attention_norm"])
    x = x + w["o"] @ np.tile(value, 3)
    inner = unit(x) * w["mlp_norm"]
    x = x + w["down"] @ (silu(w["gate"] @ inner) * (w["up"] @ inner))
    with jax.default_matmul_precision("highest"):
        result = head_forward(
            head,
            HEAD,
            ends=ends,
            tokens=jnp.array([[token]]),
            hidden=jnp.asarray(hidden)[None, None],
            positions=jnp.array([[17]]),
            mask=jnp.ones((1, 1, 1), bool),
        )
        logits = head_logits(result.hidden, ends, HEAD)
    np.testing.assert_allclose(result.hidden[0, 0], x, rtol=1e-4, atol=1e-5)
    wanted = np.asarray(ends.lm_head, np.float64) @ (unit(x) * np.asarray(ends.final_norm))
    np.testing.assert_allclose(logits[0, 0], wanted, rtol=1e-4, atol=1e-5)


def test_a_tied_target_shares_its_embedding(target_params):
    ends = target_ends({k: v for k, v in target_params.items() if k != "lm_head"})
    np.testing.assert_array_equal(ends.lm_head, ends.embed)
    assert not np.array_equal(target_ends(target_params).lm_head, ends.embed)
    # The head's own config may say either: it reads the ends.
    hidden = jnp.ones((1, 12))
    logits = [head_logits(hidden, ends, dataclasses.replace(HEAD, tie_embeddings=tie)) for tie in (False, True)]
    np.testing.assert_array_equal(*logits)


# Files.


@pytest.fixture(scope="module")
def written(tmp_path_factory, head, target_params):
    folder = tmp_path_factory.mktemp("head")
    save_directory(target_params, TARGET, folder / "target", max_positions=32)
    save_head(head, HEAD, folder / "head", target=target_params, max_positions=32)
    return folder


@pytest.fixture
def copy(written, tmp_path):
    shutil.copytree(written / "head", tmp_path / "copy")
    return tmp_path / "copy"


def test_what_is_written_is_read(written, head):
    target = load_directory(written / "target")
    read = load_head(written / "head", target)
    assert read.config == HEAD
    assert jax.tree.structure(read.params) == jax.tree.structure(head)
    for own, stored in zip(jax.tree.leaves(head), jax.tree.leaves(read.params)):
        assert stored.dtype == jnp.bfloat16
        np.testing.assert_array_equal(stored.astype(jnp.float32), own)
    np.testing.assert_array_equal(read.ends.lm_head, target.params["lm_head"])
    assert load_head(written / "head", target, dtype=jnp.float32).params["fc"].dtype == jnp.float32


def test_the_hash_knows_weights_and_not_how_they_are_stored(written, target_params):
    stored = load_directory(written / "target")
    assert weights_sha256(stored.params) == weights_sha256(target_params) != weights_sha256({})
    streamed = load_directory(written / "target", stream="all")
    assert weights_sha256(streamed.params) == weights_sha256(stored.params)
    # One last bit of one weight, and two matrices of one shape in each other's place.
    nudged = target_params | {"embed": jnp.asarray(np.nextafter(np.asarray(target_params["embed"]), 9, dtype="f4"))}
    swapped = target_params | {"embed": target_params["lm_head"], "lm_head": target_params["embed"]}
    assert len({weights_sha256(params) for params in (target_params, nudged, swapped)}) == 3


def test_another_target_is_refused(written):
    target = load_directory(written / "target")
    other = dataclasses.replace(target, params=target.params | {"embed": -target.params["embed"]})
    with pytest.raises(InputError, match=r"trained on weights with SHA-256 \w{12}.*: use the target") as error:
        load_head(written / "head", other)
    assert "\n" not in str(error.value)


def change(path, edit):
    raw = json.loads(path.read_text())
    edit(raw)
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw.update(model_type="llama"), "has model_type 'llama'; a draft head has"),
        (lambda raw: raw.pop("network"), "has network None; it must be an object"),
        (lambda raw: raw.update(target_weights_sha256="abc"), "'abc'; it must be 64 hex digits"),
        (lambda raw: raw["network"].update(num_hidden_layers=2), "2 layers is not modelled"),
        (lambda raw: raw["network"].update(hidden_size=10), "hidden_size 10; the target has 12"),
        (lambda raw: raw["network"].update(rms_norm_eps=0.5), "norm_eps 0.5; the target has 1e-05"),
        (lambda raw: raw["network"].update(vocab_size=14), "vocab_size 14; the target has 13"),
        (lambda raw: raw["network"].update(intermediate_size=8), "has shape (7, 12); its config.json needs (8, 12)"),
        (lambda raw: raw["network"].pop("hidden_size"), "hidden_size"),
    ],
)
def test_a_wrong_config_is_one_line(written, copy, edit, message):
    change(copy / "config.json", edit)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        load_head(copy, load_directory(written / "target"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop("fc.weight"), "no tensor 'fc.weight'"),
        (lambda tensors: tensors.update({"lm_head.weight": tensors["fc.weight"]}), "has tensor 'lm_head.weight'"),
        (lambda tensors: tensors.update({"fc.weight": tensors["fc.weight"].T.copy()}), "has shape (24, 12)"),
    ],
)
def test_wrong_tensors_are_one_line(written, copy, edit, message):
    tensors = load_file(copy / "model.safetensors")
    edit(tensors)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(InputError, match=re.escape(message)) as error:
        load_head(copy, load_directory(written / "target"))
    assert "\n" not in str(error.value)


def test_the_shipped_drafts_load():
    target, small = embedded.load_model("embedded"), embedded.load_model("embedded-small")
    head = embedded.load_draft_head("embedded-head", target)
    assert small.config.vocab_size == head.config.vocab_size == target.config.vocab_size
    assert small.config.num_parameters() < target.config.num_parameters() / 5
    for directory in (small.directory, head.directory):
        assert (directory / "model.safetensors").stat().st_size < 2_000_000
        assert "Score" in (directory / "README.md").read_text()
    with pytest.raises(InputError, match="trained on weights"):
        embedded.load_draft_head("embedded-head", small)
