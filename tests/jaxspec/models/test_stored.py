"""Large networks in 16 bits: products of few rows widen a matrix piece by piece, out of the stack of all layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CONFIG, POSITIONS, TOKENS, random_params

from jaxspec.models import dots, matrix
from jaxspec.models.blocks import StepInput
from jaxspec.models.decoder import causal_mask, forward
from jaxspec.models.matrix import OfLayer, Stored, stack_of
from jaxspec.models.stored import as_stored, biased_rows

pytestmark = pytest.mark.network

#: Elements of a piece: several rows of every matrix of the network, and no divisor of their number.
PIECE = 3 * CONFIG.hidden_size


def run(params, rows=slice(None)):
    tokens, positions = TOKENS[rows], POSITIONS[rows]
    mask = causal_mask(len(tokens), tokens.shape[1])
    # A function of its own, so that nothing is taken from another test's compilation.
    return jax.jit(lambda p: forward(p, CONFIG, tokens, StepInput(positions, mask)).logits), params


def widened(jaxpr, found):
    """Shapes of all float32 values that a program makes of 16-bit ones, loops included."""
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    widened(inner, found)
        if equation.primitive.name == "convert_element_type":
            (before,), (after,) = equation.invars, equation.outvars
            if before.aval.dtype.itemsize == 2 and after.aval.dtype == jnp.float32:
                found.append(after.aval.shape)
    return found


@pytest.fixture
def network():
    return as_stored(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_params()))


@pytest.fixture
def widening(monkeypatch):
    """A processor without a matrix unit for bfloat16: products of the others widen nothing."""
    monkeypatch.setattr(dots, "_has_unit", lambda: False)


@pytest.mark.usefixtures("widening")
def test_few_rows_are_multiplied_in_pieces_and_the_numbers_stay(monkeypatch, network):
    program, params = run(network)
    plain, whole = program(params), widened(jax.make_jaxpr(program)(params).jaxpr, [])
    monkeypatch.setattr(matrix, "_FEW_ROWS_PIECE", PIECE)
    program, params = run(network)
    pieces = widened(jax.make_jaxpr(program)(params).jaxpr, [])
    # The same terms in another order: their sums differ by rounding of the terms, however small a sum is.
    rounding = 8 * np.finfo(np.float32).eps * np.max(np.abs(plain))
    np.testing.assert_allclose(program(params), plain, rtol=0, atol=rounding)
    matrices = {leaf.shape[-2:] for leaf in jax.tree.leaves(params) if leaf.ndim > 1 and leaf.size > PIECE}
    assert matrices & set(whole)
    assert not matrices & set(pieces)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("size", [1, 5])
def test_any_size_of_a_piece_and_any_layer(monkeypatch, dtype, size):
    rng = np.random.default_rng(0)
    stack = jnp.asarray(rng.standard_normal((3, 11, 7)), dtype)
    x, bias = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((2, 4, 7), (11,)))
    monkeypatch.setattr(matrix, "_FEW_ROWS_PIECE", size * 7)
    for layer in range(3):
        own = Stored.of(stack[layer])
        held = OfLayer(Stored.of(stack), jnp.int32(layer), own)
        wanted = np.asarray(x) @ np.asarray(stack[layer].astype(jnp.float32)).T
        np.testing.assert_allclose(stack_of(held).dot(x), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(stack_of(own).dot(x), wanted, rtol=1e-5, atol=1e-5)
        found = biased_rows(x, {"up": held, "up_bias": bias}, "up", True)
        np.testing.assert_allclose(found, wanted + np.asarray(bias), rtol=1e-5, atol=1e-5)
