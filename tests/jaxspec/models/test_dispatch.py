"""Rows sent through experts: the same bits in any company, no others computed, and in whatever program."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import forward_of
from test_experts import CONFIG, TOKENS, random_params

from hwmodels.networks import ExpertSizes
from jaxspec.models.decoder import forward_text
from jaxspec.models.dispatch import through_experts
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.layerwise import input_squares, open_network
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.models.streamed import Streamed
from jaxspec.studies.pack import draft_split

pytestmark = pytest.mark.network

EXPERTS, CHOSEN = 5, 2


def product(w, rows):
    return rows @ w.T


@pytest.fixture(scope="module")
def stacks():
    return jnp.asarray(np.random.default_rng(0).standard_normal((EXPERTS, 7, 9), np.float32))


@pytest.fixture(scope="module")
def sent():
    return jax.jit(lambda stacks, rows, expert: through_experts(product, stacks, rows, expert, EXPERTS))


def draw(rng, rows):
    expert = np.stack([rng.permutation(EXPERTS)[:CHOSEN] for _ in range(rows)]).astype(np.int32)
    return rng.standard_normal((rows, 9)).astype(np.float32), expert


@pytest.mark.parametrize("rows", [1, 2, 6, 21, 90])
def test_a_rows_bits_do_not_depend_on_the_others(sent, stacks, rows):
    rng = np.random.default_rng(rows)
    x, expert = draw(rng, rows)
    found = np.asarray(sent(stacks, x, expert))
    np.testing.assert_allclose(found, np.einsum("ri,rcoi->rco", x, np.asarray(stacks)[expert]), rtol=2e-5, atol=1e-5)
    order = rng.permutation(rows)
    np.testing.assert_array_equal(sent(stacks, x[order], expert[order]), found[order])
    for crowded in (False, True):
        # All others change, and choose anything or the very experts of row 0.
        others, chosen = draw(rng, rows)
        others[0], chosen[0] = x[0], expert[0]
        chosen = np.broadcast_to(expert[:1], chosen.shape) if crowded else chosen
        np.testing.assert_array_equal(sent(stacks, others, chosen)[0], found[0])


#: As GLM-4 has it.
GLM = dataclasses.replace(
    CONFIG,
    experts=ExpertSizes(6, 2, 5, shared_size=10, scores="sigmoid", correction_bias=True, scale=1.5, groups=2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The small network with experts, stored in bfloat16 as GLM's checkpoints are, an expert's matrix a tensor."""
    out = tmp_path_factory.mktemp("experts")
    save_directory(random_params(GLM), GLM, out, max_positions=32)
    return out


def test_a_network_is_the_same_however_its_experts_are_kept(folder):
    run = jax.jit(forward_text, static_argnames="config")
    target = load_directory(folder).params
    plain = run(as_computed(target), GLM, TOKENS)
    streamed = load_directory(folder, stream=True).params
    assert isinstance(streamed["layers"]["expert_up"], Streamed)
    assert streamed["layers"]["expert_up"].shape == (2, 6, 5, 12)
    for kept in (as_stored(target), streamed):
        found = run(kept, GLM, TOKENS)
        np.testing.assert_allclose(found.logits, plain.logits, rtol=1e-6, atol=1e-6)
        jax.tree.map(np.testing.assert_array_equal, found.extras, plain.extras)


def test_a_network_read_layer_by_layer_sees_the_same_inputs(folder):
    run = jax.jit(forward_text, static_argnames=("config", "keep_activations"))
    seen = run(load_directory(folder).params, GLM, TOKENS, keep_activations=jnp.square).activations
    found = input_squares(open_network(folder), TOKENS)
    assert set(found) == {
        "qkv",
        "o",
        "gate_up",
        "down",
        "expert_gate_up",
        "expert_down",
        "shared_gate_up",
        "shared_down",
    }
    for name, squares in found.items():
        np.testing.assert_allclose(squares, np.asarray(seen[name]).sum((1, 2)), rtol=2e-6)


def test_a_tokens_logits_do_not_depend_on_what_other_sequences_choose():
    # Several sequences in one step of a fixed width, as verification runs them.
    params, rng = random_params(CONFIG), np.random.default_rng(3)
    step = {
        "positions": np.broadcast_to(np.arange(3), (4, 3)),
        "mask": np.broadcast_to(np.tril(np.ones((3, 3), bool)), (4, 3, 3)),
    }
    run = jax.jit(forward_of, static_argnames="config")
    tokens = rng.integers(13, size=(4, 3)).astype(np.int32)
    found = run(params, CONFIG, tokens=tokens, **step)
    for _ in range(3):
        others = rng.integers(13, size=(4, 3)).astype(np.int32)
        others[1] = tokens[1]
        again = run(params, CONFIG, tokens=others, **step)
        assert not np.array_equal(again.extras.used, found.extras.used)
        np.testing.assert_array_equal(again.logits[1], found.logits[1])


def test_each_experts_matrix_is_packed_by_the_inputs_of_its_layer(folder, monkeypatch):
    network = open_network(folder)
    names = draft_split.matrix_names(network)
    assert names["model.layers.2.mlp.experts.5.up_proj.weight"] == (2, ("expert_up",))
    assert names["model.layers.0.mlp.up_proj.weight"] == (0, ("up",))
    assert len(names) == 3 * 4 + 3 + 2 * 3 * (6 + 1)
    # The dense layer has no experts' inputs, so those of layer 2 are the second.
    squares = {group: np.arange(1.0, 4.0)[:, None] ** 2 for group in draft_split.INPUT_OF.values()}
    monkeypatch.setattr(draft_split, "input_squares", lambda *_, **__: squares)
    text = SimpleNamespace(calibration_windows=lambda *_: None)
    monkeypatch.setattr(draft_split, "load_text", lambda *_, **__: text)
    monkeypatch.setattr(type(network), "tokenizer", None)
    norms = draft_split.measured_norms(network, "", num_windows=1, window_tokens=1, seed=0)
    assert float(norms["model.layers.2.mlp.experts.5.down_proj.weight"][0]) == 2.0
    assert float(norms["model.layers.2.self_attn.q_proj.weight"][0]) == 3.0
