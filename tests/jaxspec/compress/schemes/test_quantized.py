"""Quantized schemes on matrices: against llama.cpp's blocks, groups cut out by hand, and a network of experts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import uneven_network

from hwmodels.networks import ExpertSizes
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import SCHEMES, find_scheme
from jaxspec.compress.weights import hard_draft, target_network
from jaxspec.formats import group_quantization, mx
from jaxspec.models import DecoderConfig
from jaxspec.models.blocks import Experts
from jaxspec.models.config import INPUT_OF
from jaxspec.testing.schemes import prepare_at_once

QUANTIZED = [name for name, scheme in SCHEMES.items() if ".quantized:" in scheme.facts.place]


def matrix(rows, columns, seed=0):
    """Rows of different scales, as trained ones are."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, columns)) * np.exp(rng.standard_normal((rows, 1)))).astype(np.float32)


@functools.partial(jax.jit, static_argnames="name")
def _read(name, values):
    return find_scheme(name, runs=True).matrix.target(values)


def read(name, values):
    """One program for each scheme and shape; outside of one a matrix is fifty."""
    return np.asarray(_read(name, values))


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("name", ["q4_0", "q8_0"])
def test_groups_are_the_blocks_of_llama_cpp(name):
    values = matrix(5, 96)
    again = jax.jit(lambda values: group_quantization.decode(group_quantization.encode(values, name)))(values)
    np.testing.assert_array_equal(read(name, values), again)
    # Zeros that fill up a row change nothing of it.
    np.testing.assert_array_equal(
        read(name, values[:, :70]), read(name, np.pad(values[:, :70], ((0, 0), (0, 26))))[:, :70]
    )


@pytest.mark.parametrize(("tiled", "plain"), [("tile-q4_0", "q4_0"), ("tile-q8_0", "q8_0")])
@pytest.mark.parametrize("shape", [(32, 64), (50, 37), (16, 2), (3, 90)])
def test_a_group_of_tiles_is_2_inputs_by_16_outputs(tiled, plain, shape):
    values = matrix(*shape)
    rows, columns = shape
    filled = np.pad(values, ((0, -rows % 16), (0, -columns % 2)))
    found = np.zeros_like(filled)
    for row in range(0, rows, 16):
        for column in range(0, columns, 2):
            block = filled[row : row + 16, column : column + 2]
            # Outputs first, the two inputs of each beside one another: the order decides which of two equal extremes counts.
            found[row : row + 16, column : column + 2] = read(plain, block.reshape(1, 32)).reshape(16, 2)
    np.testing.assert_array_equal(read(tiled, values), found[:rows, :columns])


def test_a_channel_has_one_scale():
    values = matrix(4, 75)
    for name, most in (("int4-channel", 7), ("int8-channel", 127)):
        scale = np.float16(np.abs(values).max(axis=-1, keepdims=True) / most).astype(np.float32)
        integers = read(name, values) / scale
        np.testing.assert_array_equal(integers, np.round(integers))
        assert np.abs(integers).max() == most
        assert np.abs(read(name, values) - values).max() <= 0.51 * scale.max()


@pytest.mark.scheme_matrix
def test_mx_is_that_of_the_formats():
    values = matrix(3, 70)
    for name, element in (("mxfp8", mx.E4M3), ("mxfp4", mx.E2M1)):
        there_and_back = jax.jit(lambda values, element=element: mx.decode(mx.encode(values, element)))
        np.testing.assert_array_equal(read(name, values), there_and_back(values))


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("name", QUANTIZED)
def test_what_is_stored_is_read_and_stored_again_unchanged(name):
    # Down to where a scale is subnormal in float16, and zero.
    sizes = 2.0 ** np.array([-24, -18, -7, 0, 5])[:, None, None]
    values = (np.stack([matrix(17, 33, seed) for seed in range(len(sizes))]) * sizes).astype(np.float32)
    store = jax.jit(find_scheme(name, runs=True).matrix.target)
    once = store(values)
    np.testing.assert_array_equal(store(once), once)
    assert once.dtype == np.float32
    np.testing.assert_array_equal(once[3], store(values[3:4])[0])


def test_bits_of_a_matrix_count_what_fills_it_up():
    bits = lambda name, *shape: find_scheme(name).matrix.form.bits(*shape)
    assert bits("q4_0", 3, 64) == 4.5
    assert bits("q4_0", 3, 40) == pytest.approx(2 * 144 / 40)
    assert bits("tile-q4_0", 32, 32) == 4.5
    assert bits("tile-q4_0", 33, 32) == pytest.approx(4.5 * 64 / 33)
    assert bits("int4-channel", 3, 40) == pytest.approx(4.4)
    assert bits("mxfp4", 3, 40) == pytest.approx(2 * (8 + 128) / 40)


EXPERTS = DecoderConfig(
    vocab_size=11,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    experts=ExpertSizes(num_experts=3, per_token=2, inner_size=16, shared_size=32),
    feed_forward=(Experts(),),
)


@pytest.mark.scheme_matrix
def test_experts_are_quantized_each_by_itself_and_down_by_its_own_scheme():
    scheme = find_scheme("tile-q4_0-down8", runs=True)
    params = uneven_network(EXPERTS, 0, sharpness=1.0)
    whole = target_network(scheme, params)
    norms = {INPUT_OF[kind]: jnp.ones((2, params["layers"][kind].shape[-1])) for kind in EXPERTS.matrix_kinds}
    draft = hard_draft(whole, prepare_at_once(scheme, whole, norms), uniform_knobs(scheme, EXPERTS), EXPERTS)["layers"]
    values = jax.jit(lambda layers: {kind: layers[kind].values() for kind in EXPERTS.matrix_kinds})
    made, drafted = jax.device_get((values(whole["layers"]), values(draft)))
    params = jax.device_get(params)
    for kind in EXPERTS.matrix_kinds:
        np.testing.assert_array_equal(drafted[kind], made[kind])
        # Steps of 8 bits are finer by far.
        relative = np.abs(made[kind] - params["layers"][kind]).max() / np.abs(params["layers"][kind]).max()
        assert (relative < 0.01) == (kind in ("down", "expert_down", "shared_down"))
    second = jax.jit(scheme.matrix.target)(params["layers"]["expert_up"][1, 2])
    np.testing.assert_array_equal(made["expert_up"][1, 2], second)
