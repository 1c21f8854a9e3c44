"""NumPy's arrays become JAX's by a copy in tests (`conftest.py`): with the types, and as independent, as JAX makes them."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np


def test_a_copy_keeps_its_values_when_the_source_changes():
    source = np.arange(640, dtype=np.float32)
    copies = [jnp.asarray(source), jnp.asarray(source, jnp.float32), jnp.array(source)]
    source[:] = -1
    for copy in copies:
        np.testing.assert_array_equal(copy, np.arange(640))
        assert not copy.committed


def test_types_are_those_of_a_program():
    made = [
        (lambda: jnp.asarray(np.ones(3)), jnp.float32, jnp.float64),
        (lambda: jnp.asarray([1, 2]), jnp.int32, jnp.int64),
        (lambda: jnp.asarray(np.arange(4), jnp.bfloat16), jnp.bfloat16, jnp.bfloat16),
        (lambda: jnp.array(np.ones(2, ml_dtypes.bfloat16)), jnp.bfloat16, jnp.bfloat16),
        (lambda: jnp.asarray(np.float32(2.5)), jnp.float32, jnp.float32),
    ]
    for make, narrow, wide in made:
        for x64, dtype in ((False, narrow), (True, wide)):
            with jax.enable_x64(x64):
                found, compiled = make(), jax.jit(make)()
            assert (found.dtype, found.weak_type) == (dtype, False) == (compiled.dtype, compiled.weak_type)
            np.testing.assert_array_equal(found, compiled)


def test_python_numbers_stay_weak():
    assert jnp.asarray(2.5).weak_type
    assert jnp.asarray(2.5).dtype == jnp.float32
