"""Rows split over a multiplier of bfloat16: numbers and gradients of the float32 product."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import dots, matrix
from jaxspec.models.dots import dot_rows, split_dot, splits
from jaxspec.models.matrix import Stored, stack_of

pytestmark = pytest.mark.network


def operands(rows, columns, outputs, spread=1.0):
    """Rows of very unlike sizes, and a matrix in bfloat16."""
    keys = jax.random.split(jax.random.key(columns), 3)
    sizes = jnp.exp(spread * jax.random.normal(keys[2], (rows, columns)))
    return jax.random.normal(keys[0], (rows, columns)) * sizes, jax.random.normal(
        keys[1], (outputs, columns), "bfloat16"
    )


def doubled(array):
    return np.asarray(array.astype(jnp.float32), np.float64)


@pytest.mark.parametrize(("rows", "columns", "outputs"), [(1, 7, 3), (5, 256, 33), (17, 1024, 8)])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_are_as_exact_as_float32(rows, columns, outputs, spread):
    x, w = operands(rows, columns, outputs, spread)
    exact, sizes = doubled(x) @ doubled(w).T, np.abs(doubled(x)) @ np.abs(doubled(w)).T
    # Which sums a processor forms first decides about last digits, so the float32 product is computed on the same one.
    plain = jax.jit(lambda x, w: jnp.dot(x, w.astype(jnp.float32).T, precision="highest"))
    error, usual = (np.abs(np.asarray(jax.jit(product)(x, w), np.float64) - exact) for product in (split_dot, plain))
    # Sums of `columns` products and of the three parts, in any order: Higham 2002, eq. 3.5, with u = 2^-24.
    assert (error <= (columns + 2) * 2.0**-24 * sizes).all()
    mean = lambda errors: np.sqrt(np.mean(np.square(errors / sizes)))
    most = 2 * mean(usual) + 2.0**-25
    assert mean(error) <= most
    if columns > 7:  # two parts would not do
        high = x.astype(jnp.bfloat16).astype(jnp.float32)
        both = high + (x - high).astype(jnp.bfloat16).astype(jnp.float32)
        assert mean(doubled(both) @ doubled(w).T - exact) > most


def test_gradients_are_those_of_the_float32_product():
    x, w = operands(6, 40, 9)
    direction = jax.random.normal(jax.random.key(9), (6, 9))
    loss = lambda product: lambda x, w: jnp.sum(jnp.sin(product(x, w)) * direction)
    plain = loss(lambda x, w: x @ w.astype(jnp.float32).T)
    for found, wanted in zip(jax.grad(loss(split_dot), (0, 1))(x, w), jax.grad(plain, (0, 1))(x, w), strict=True):
        assert found.dtype == wanted.dtype
        # The gradient of a bfloat16 matrix is itself in bfloat16.
        near = 1e-5 if found.dtype == jnp.float32 else 1e-2
        np.testing.assert_allclose(doubled(found), doubled(wanted), rtol=near, atol=near)


@pytest.fixture(params=[True, False])
def unit(request, monkeypatch):
    """A processor with such a unit, and one without."""
    monkeypatch.setattr(dots, "_has_unit", lambda: request.param)
    return request.param


def test_are_taken_where_the_processor_has_the_unit(unit, monkeypatch):
    assert splits(jnp.float32, jnp.bfloat16) == unit
    assert not splits(jnp.float32, jnp.float32)
    assert not splits(jnp.float32, jnp.float16)
    assert not splits(jnp.bfloat16, jnp.bfloat16)
    calls = []
    monkeypatch.setattr(dots, "split_dot", lambda x, w: calls.append(x.shape) or split_dot(x, w))
    x, w = operands(6, 40, 9)
    np.testing.assert_allclose(dot_rows(x.reshape(2, 3, 40), w).reshape(6, 9), x @ w.astype(jnp.float32).T, rtol=1e-4)
    assert calls == [(6, 40)] * unit
    dot_rows(x, w, jnp.bfloat16)  # asked for by name: both operands rounded
    dot_rows(x, w.astype(jnp.float32))
    assert len(calls) == unit


@pytest.mark.parametrize("rows", [1, 5])
def test_large_matrices_are_multiplied_in_pieces_as_they_are_stored(unit, rows, monkeypatch):
    for name in ("_FEW_ROWS_PIECE", "_UNWIDENED_PIECE"):
        monkeypatch.setattr(matrix, name, 3 * 40)
    x, w = operands(rows, 40, 31)
    product = jax.jit(lambda x, w: stack_of(w).dot(x))
    np.testing.assert_allclose(product(x, Stored.of(w)), x @ w.astype(jnp.float32).T, rtol=1e-4, atol=1e-5)
    program = str(jax.make_jaxpr(lambda x, w: stack_of(w).dot(x))(x, Stored.of(w)))
    assert "bf16[3,40]" in program
    assert ("f32[3,40]" in program) != unit


@pytest.fixture(params=["9.0", "7.5", "gfx942", None])
def gpu(request, monkeypatch):
    """A GPU by its compute capability, as JAX tells it; whether it multiplies bfloat16."""
    device = SimpleNamespace(**({"compute_capability": request.param} if request.param else {}))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    dots.gpu_has_unit.cache_clear()
    yield request.param == "9.0"
    dots.gpu_has_unit.cache_clear()


def test_gpus_split_several_rows_and_multiply_a_single_one_as_it_is(gpu):
    assert splits(jnp.float32, jnp.bfloat16) == gpu
    assert not splits(jnp.float32, jnp.bfloat16, 1)
    assert not splits(jnp.float32, jnp.float32)
    x, w = operands(5, 40, 9)
    for rows in (1, 5):
        program = str(jax.make_jaxpr(lambda x: dot_rows(x, w))(x[:rows]))
        assert ("bf16[3,5,40]" in program) == (gpu and rows == 5)
        assert ("HIGHEST" in program) != (gpu and rows == 5)
