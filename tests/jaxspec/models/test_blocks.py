"""Kinds of block: what they declare is what they compute with, and a network may mix them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from safetensors.numpy import save_file

from hwmodels.networks import Running
from hwmodels.networks.tensor_names import TENSORS
from jaxspec.errors import InputError
from jaxspec.models import decoder, kv_cache, layer_loops
from jaxspec.models.blocks import DenseFeedForward, FeedForwardResult, GroupedAttention, StepInput
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params, causal_mask
from jaxspec.models.decoder_layer import decoder_layer
from jaxspec.models.dots import dot_rows
from jaxspec.models.hf_load import read_tensors
from jaxspec.models.kv_cache import CachedKV
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored_parameters import network_parameters, stored_tensors

pytestmark = pytest.mark.network

SIZES = DecoderConfig(
    vocab_size=13, hidden_size=12, intermediate_size=7, num_layers=5, num_heads=4, num_kv_heads=2, head_dim=6
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A made-up feed-forward block: each token goes through the one of `count` square matrices that its router prefers."""

    count: int

    def matrices(self, sizes):
        hidden = sizes.hidden_size
        return {"choice_router": (self.count, hidden), "choice": (self.count, hidden, hidden)}

    residual_matrices = ("choice",)

    def vectors(self, sizes):
        return {"choice_bias": (sizes.hidden_size, 0.25)}

    def architecture_fields(self, sizes, layers):
        return {"num_moe_layers": layers, "num_experts": self.count, "vectors_per_layer": sizes.hidden_size}

    def apply(self, normed, weights, sizes, step):
        chosen = jnp.argmax(dot_rows(normed, weights["choice_router"], step.dot_dtype), axis=-1)
        output = (
            jnp.einsum("...i,...oi->...o", normed, stack_of(weights["choice"]).take(chosen).values())
            + weights["choice_bias"][None, None]
        )
        return FeedForwardResult(output, {"choice_in": normed})


#: Layers 1 and 2 choose, the others are dense: three runs, one of two layers.
MIXED = dataclasses.replace(
    SIZES, feed_forward=(DenseFeedForward(), Choice(3), Choice(3), DenseFeedForward(), DenseFeedForward())
)
TOKENS = np.random.default_rng(1).integers(13, size=(2, 4)).astype(np.int32)


def random_params(config, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray(leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape, np.float32))
    return jax.tree.map(draw, abstract_params(config))


def test_each_parameter_is_stacked_over_the_layers_that_have_it():
    layers = abstract_params(MIXED)["layers"]
    assert {name: leaf.shape for name, leaf in layers.items()} == {
        "q": (5, 24, 12),
        "k": (5, 12, 12),
        "v": (5, 12, 12),
        "o": (5, 12, 24),
        "gate": (3, 7, 12),
        "up": (3, 7, 12),
        "down": (3, 12, 7),
        "choice_router": (2, 3, 12),
        "choice": (2, 3, 12, 12),
        "choice_bias": (2, 12),
        "attention_norm": (5, 12),
        "mlp_norm": (5, 12),
    }
    found = MIXED.layer_parameters
    assert list(found["gate"].layers()) == [0, 3, 4]
    assert list(found["choice"].layers()) == [1, 2]
    assert MIXED.num_parameters() == sum(leaf.size for leaf in jax.tree.leaves(abstract_params(MIXED)))
    assert [(run.start, run.stop) for run in MIXED.runs] == [(0, 1), (1, 3), (3, 5)]
    assert [(run.start, run.stop) for run in SIZES.runs] == [(0, 5)]


def test_a_mixed_network_is_its_layers_one_after_the_other():
    params = random_params(MIXED)
    run = jax.jit(decoder.forward_text, static_argnums=1, static_argnames="keep_activations")
    result = run(params, MIXED, TOKENS, keep_activations=jnp.asarray)
    step = StepInput(jnp.broadcast_to(jnp.arange(4), (2, 4)), causal_mask(2, 4))
    x, place, written = params["embed"][TOKENS], {}, []
    for layer in range(5):
        kinds = MIXED.blocks(layer)
        names = {*kinds[0].matrices(MIXED), *kinds[1].matrices(MIXED), *kinds[1].vectors(MIXED)}
        weights = {}
        for name in {*names, "attention_norm", "mlp_norm"}:
            weights[name] = params["layers"][name][place.get(name, 0)]
            place[name] = place.get(name, 0) + 1
        done = decoder_layer(x, weights, MIXED, kinds, step)
        x = done.output
        written.append(done.written)
    np.testing.assert_allclose(result.hidden, x, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(result.cache.key, np.stack([key for key, _ in written]), rtol=2e-5, atol=2e-5)
    assert result.activations is not None
    assert {name: len(value) for name, value in result.activations.items()} == {
        "qkv": 5,
        "o": 5,
        "gate_up": 3,
        "down": 3,
        "choice_in": 2,
    }


def sliced_stacks(jaxpr):
    """Arrays that are cut out of stacks of all five layers, loops' bodies included."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "slice" and equation.invars[0].aval.shape[:1] == (5,):
            found.append(equation.outvars[0].aval.shape)
        for inner in jaxprs_in_params(equation.params):
            found += sliced_stacks(inner)
    return found


def test_decoding_cuts_no_layers_out_of_their_stacks(monkeypatch):
    """XLA would copy these weights, and the cache, in every step."""
    params, empty = random_params(MIXED), kv_cache.empty_cache(MIXED, 2, 6)
    cached = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.ndim), leaf.shape), empty)

    def step(params, cached):
        source = CachedKV(cached, jnp.ones((2, 1, 6), bool))
        return decoder.forward(params, MIXED, TOKENS[:, :1], StepInput(np.full((2, 1), 6), causal_mask(2, 1), [source]))

    found = jax.jit(step)(params, cached)
    assert sliced_stacks(jax.make_jaxpr(step)(params, cached).jaxpr) == []
    between = layer_loops.entries_between
    monkeypatch.setattr(layer_loops, "entries_between", lambda *given, in_place=False: between(*given))
    assert (2, 24, 12) in sliced_stacks(jax.make_jaxpr(lambda *given: step(*given))(params, cached).jaxpr)
    copied = jax.jit(lambda *given: step(*given))(params, cached)
    np.testing.assert_array_equal(found.logits, copied.logits)
    np.testing.assert_array_equal(found.cache.value, copied.cache.value)


def test_a_mixed_network_is_stored_and_read(tmp_path):
    # The first axis of a parameter may be spread over tensors, as checkpoints store experts one by one.
    names = TENSORS["llama"] | {
        "choice_router": "model.layers.{layer}.choice.router.weight",
        "choice": "model.layers.{layer}.choice.{expert}.weight",
        "choice_bias": "model.layers.{layer}.choice.bias",
    }
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_params(MIXED))
    stored = network_parameters(MIXED, Running("MixedForCausalLM", names))
    tensors = stored_tensors(params, stored)
    np.testing.assert_array_equal(tensors["model.layers.2.choice.1.weight"], params["layers"]["choice"][1, 1])
    np.testing.assert_array_equal(tensors["model.layers.3.mlp.gate_proj.weight"], params["layers"]["gate"][1])
    save_file(tensors, tmp_path / "model.safetensors")
    read = read_tensors(stored, CheckpointFiles(tmp_path), tmp_path)
    assert jax.tree.structure(read) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, read, params)
    del tensors["model.layers.2.choice.1.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"has no tensor 'model\.layers\.2\.choice\.1\.weight'"):
        read_tensors(stored, CheckpointFiles(tmp_path), tmp_path)


def test_biases_are_added_to_queries_keys_and_values():
    # A constant input column of 1 makes a bias out of a column of the matrix.
    biased = dataclasses.replace(SIZES, num_layers=1, qkv_bias=True)
    params = random_params(biased)
    weights = {name: leaf[0] for name, leaf in params["layers"].items()}
    normed = jnp.asarray(np.random.default_rng(3).standard_normal((2, 4, 12), np.float32)).at[..., 0].set(1.0)
    step = StepInput(jnp.broadcast_to(jnp.arange(4), (2, 4)), causal_mask(2, 4))
    attention = GroupedAttention()
    folded = weights | {kind: weights[kind].at[:, 0].add(weights[f"{kind}_bias"]) for kind in ("q", "k", "v")}
    plain = dataclasses.replace(biased, qkv_bias=False)
    ours = attention.apply(normed, weights, biased, step)
    expected = attention.apply(normed, folded, plain, step)
    np.testing.assert_allclose(ours.output, expected.output, rtol=2e-5, atol=2e-6)
    assert {name: length for name, (length, _) in attention.vectors(biased).items()} == {
        "q_bias": 24,
        "k_bias": 12,
        "v_bias": 12,
    }
