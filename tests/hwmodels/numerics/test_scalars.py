import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics.scalars import as_float


@pytest.mark.parametrize("value", [2**40, True, 1.5, np.float64(2.5)])
def test_python_numbers_stay_python_floats(value):
    assert type(as_float(value)) is float
    assert as_float(value) == value


def test_integer_arrays_become_floats():
    assert as_float(jnp.arange(3)).dtype == jnp.float32
    assert as_float(np.int32(7)).dtype == jnp.float32


def test_float_arrays_keep_their_type(x64):
    assert as_float(jnp.ones(2, jnp.float32)).dtype == jnp.float32
    assert as_float(jnp.ones(2, jnp.float64)).dtype == jnp.float64


def test_traced_integers_do_not_wrap():
    squared = jax.jit(lambda value: as_float(value) * as_float(value))(100_000)
    assert squared == 1e10
