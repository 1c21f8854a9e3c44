"""Few rows read by their transpose: the same product, by other kernels of XLA, where these were measured to be faster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import dots
from jaxspec.models.dots import dot_few_rows, is_few_rows


@pytest.fixture(params=["avx2", "avx2 avx512f", "asimd", ""])
def narrow(request, monkeypatch):
    """Whether vectors of this processor have 256 bits."""
    monkeypatch.setattr(dots, "processor_features", lambda: frozenset(request.param.split()))
    return request.param == "avx2"


def operands(*lead, columns=40, outputs=24):
    keys = jax.random.split(jax.random.key(columns))
    return jax.random.normal(keys[0], (*lead, columns)), jax.random.normal(keys[1], (columns, outputs))


@pytest.mark.network(2)
@pytest.mark.parametrize("lead", [(2,), (3, 5), (2, 2, 16)])
def test_the_product_and_its_gradients(lead):
    x, matrix = operands(*lead)
    product, gradients = jax.vjp(dot_few_rows, x, matrix)
    cotangent = jax.random.normal(jax.random.key(1), product.shape)
    rows, columns, given = (np.asarray(array, np.float64) for array in (x, matrix, cotangent))
    flat, told = rows.reshape(-1, rows.shape[-1]), given.reshape(-1, given.shape[-1])
    # Each sum of n products, in whatever order: n roundings of float32, of the sum of their sizes.
    for found, one, other in zip(
        (product, *gradients(cotangent)), (rows, given, flat.T), (columns, columns.T, told), strict=True
    ):
        bound = one.shape[-1] * np.finfo(np.float32).eps * (np.abs(one) @ np.abs(other))
        assert np.all(np.abs(np.asarray(found, np.float64) - one @ other) <= bound)


@pytest.mark.network(3)
def test_only_few_float32_rows_on_a_processor_that_was_measured(narrow):
    for rows, few in ((0, False), (1, False), (2, True), (64, True), (65, False)):
        x, matrix = operands(rows)
        assert is_few_rows(x, matrix) == (few and narrow)
    for rows, few in ((8, False), (9, True)):
        assert is_few_rows(*operands(rows, columns=257)) == (few and narrow)
    x, matrix = operands(2, 8, columns=256)
    assert is_few_rows(x, matrix) == narrow
    assert not is_few_rows(x, matrix.astype(jnp.bfloat16))
    assert not is_few_rows(x.astype(jnp.bfloat16), matrix.astype(jnp.bfloat16))
