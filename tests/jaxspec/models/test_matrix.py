"""Every form in which a matrix is held: one contract, which a further form passes by one line in `FORMS`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.formats.codes import Codes
from jaxspec.models.apart import Apart
from jaxspec.models.coded import Coded
from jaxspec.models.matrix import Dense, Made, OfLayer, Stored, matrix_of
from jaxspec.models.streamed import Streamed

STACK = jax.random.normal(jax.random.key(0), (3, 5, 4)).astype(jnp.bfloat16)
WIDE = np.asarray(STACK, np.float32)


def _tripled(values, factor):
    return values * factor.astype(values.dtype)


#: Form of a stack of three matrices -> how it is made, and the bits that it holds of a value.
FORMS = {
    "dense": (lambda: Dense(STACK), 16),
    "stored": (lambda: Stored.of(STACK), 16),
    "stored float32": (lambda: Stored.of(STACK.astype(jnp.float32)), 32),
    "apart": (lambda: Apart.of(STACK), 16),
    "streamed": (lambda: Streamed.of(np.asarray(STACK)), 64 / 20),  # a reference of 64 bits for each matrix
    # Codes of 1, and a scale for each: 8 and 16 bits.
    "coded": (lambda: Coded(Codes(np.ones((3, 5, 4), np.int8), np.asarray(STACK), columns=4), STACK.dtype), 24),
    "made": (lambda: Made.of(Stored.of(STACK), _tripled, jnp.ones(3)), 16 + 32 / 20),
    "made of streamed": (lambda: Made.of(Streamed.of(np.asarray(STACK)), _tripled, jnp.ones(3)), (64 + 32) / 20),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_its_product_its_bits_and_its_values(form):
    make, bits = FORMS[form]
    stack, x = make(), jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 4)), jnp.float32)
    assert (stack.shape, stack.size) == ((3, 5, 4), 60)
    assert stack.bits_per_value == pytest.approx(bits)
    np.testing.assert_array_equal(stack.values().astype(jnp.float32), WIDE)
    np.testing.assert_array_equal(stack.host_rows(1, 3).astype(np.float32), WIDE[1:3])

    @jax.jit
    def product(stack, x, layer):
        found = stack.take(layer)
        assert found.shape == (5, 4)
        assert found.dtype == stack.dtype
        decoded = matrix_of(found.to_decode())
        return found.dot(x), matrix_of(found.in_loop()).dot(x), decoded.dot(x)

    for layer in range(3):
        for found in product(stack, x, jnp.int32(layer)):
            np.testing.assert_allclose(found, np.asarray(x) @ WIDE[layer].T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["stored", "stored float32"])
def test_a_layer_left_in_its_stack_is_that_layer(form):
    stack = FORMS[form][0]()
    own = stack.take(jnp.int32(2))
    layer = OfLayer(stack, jnp.int32(2), own)
    assert (layer.shape, layer.dtype) == (own.shape, own.dtype)
    assert layer.of_gradient() is own
    x = jnp.ones((2, 4))
    np.testing.assert_array_equal(layer.dot(x), own.dot(x))
    np.testing.assert_array_equal(layer.take(jnp.int32(1)).values(), own.take(jnp.int32(1)).values())


def test_experts_share_what_is_made_of_their_layer():
    stack = jnp.arange(24.0).reshape(2, 3, 2, 2)
    made = Made.of(Stored.of(stack), _tripled, jnp.array([1.0, 3.0]))
    np.testing.assert_array_equal(made.values(), stack * jnp.array([1.0, 3.0]).reshape(2, 1, 1, 1))
    np.testing.assert_array_equal(made.take(jnp.int32(1)).take(jnp.int32(2)).values(), 3 * stack[1, 2])
