"""Group quantization at its limits: zeros, extreme scales, any shape, gradients, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from group_quantization_samples import (
    check,
    decode,
    encode,
    patterns,
    weights,
)

from jaxspec.formats import group_quantization as gq
from jaxspec.formats.code_tables import FP4, IQ4_NL, NF4


def shapes_of(x, scheme, group_size=32):
    return jax.eval_shape(lambda x: gq.encode(x, scheme, group_size=group_size), x)


def test_bits_per_weight():
    x = jnp.zeros((6, 96))
    assert gq.num_bits(shapes_of(x, "q4_0")) == 4.5 * x.size
    assert gq.num_bits(shapes_of(x, "q8_0")) == 8.5 * x.size
    # One scale for 24 codes of 4 bits.
    assert gq.num_bits(shapes_of(x, NF4, 24)) == x.size * 4 + x.size // 24 * 16
    # The bytes are all there is.
    assert 8 * jax.eval_shape(gq.pack_q4_0, shapes_of(x, "q4_0")).size == 4.5 * x.size


@pytest.mark.scheme_matrix
def test_a_group_of_zeros():
    # llama.cpp divides 0 by -8, whatever the zeros' signs: the stored scale is -0.
    for x in (jnp.asarray([-0.0, 0.0] * 16), jnp.asarray([0.0, -0.0] * 16)):
        assert patterns(encode(x, "q4_0").scales).tolist() == [0x8000]
        assert np.asarray(encode(x, "q4_0").codes).tolist() == [8] * 32
    for scheme in ("q8_0", FP4, IQ4_NL):
        np.testing.assert_array_equal(decode(encode(x, scheme)), 0)


@pytest.mark.scheme_matrix
def test_vmap_is_the_whole():
    x = jnp.asarray(weights(6, 64, seed=13))
    for scheme in ("q4_0", IQ4_NL):
        batched = jax.vmap(lambda row, scheme=scheme: encode(row, scheme))(x)
        check(batched, np.asarray(encode(x, scheme).codes), np.asarray(encode(x, scheme).scales))
        np.testing.assert_array_equal(jax.vmap(decode)(batched), decode(batched))


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", IQ4_NL], ids=["q4_0", "q8_0", "iq4_nl"])
def test_gradient_is_that_of_the_scale(scheme):
    # Decoded values are fixed levels times a scale that follows the group's largest magnitude: d decoded / d extreme.
    x = np.random.default_rng(14).normal(size=32).astype(np.float32)
    extreme = np.abs(x).argmax()
    weight = np.random.default_rng(15).normal(size=32).astype(np.float32)
    total = lambda x: jnp.sum(jnp.asarray(weight) * gq.decode(gq.encode(x, scheme)))
    quantized = encode(jnp.asarray(x), scheme)
    codes = np.asarray(quantized.codes).astype(int)
    levels = codes if quantized.table is None else np.array(quantized.table.levels)[codes]
    expected = np.zeros(32)
    expected[extreme] = np.dot(weight, levels) * float(quantized.scales[0]) / x[extreme]
    gradient = jax.jit(jax.vmap(jax.grad(total)))(jnp.asarray(np.stack([x, -2 * x])))
    np.testing.assert_allclose(gradient, [expected, expected], rtol=3e-3)
