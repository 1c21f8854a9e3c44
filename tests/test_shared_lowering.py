"""Programs that share the code of operations are the programs that they would be alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shared_lowering


@pytest.fixture(autouse=True)
def _new_context():
    shared_lowering.drop()
    jax.jit(lambda x: x + 1.0).lower(1.0)
    if not shared_lowering.SHARED:
        pytest.skip("this version of JAX lowers otherwise")
    shared_lowering.drop()
    yield
    shared_lowering.drop()


def functions():
    """Operations on their own, in loops, in programs within programs, and random numbers."""
    inner = jax.jit(lambda x: jnp.sin(x) * 2.0)
    loop = lambda x: jax.lax.fori_loop(0, 3, lambda i, y: inner(y) + x, x)
    drawn = lambda x: x + jax.random.normal(jax.random.key(3), x.shape) + jnp.cumsum(jax.nn.softmax(x))
    return [jax.jit(lambda x, f=f, k=k: jnp.sin(f(x)) * k) for k in (1.0, 3.0) for f in (loop, drawn, jnp.sort)]


def test_programs_are_those_that_they_are_alone():
    x = jnp.linspace(-1.0, 1.0, 7)
    together = [function.lower(x) for function in functions()]
    for function, one in zip(functions(), together, strict=True):
        shared_lowering.drop()
        assert one.as_text() == function.lower(x).as_text()
    for one, function in zip(together, functions(), strict=True):
        np.testing.assert_array_equal(one.compile()(x), function(x))


def test_code_is_written_once():
    kept = lambda: {key.primitive.name for codes in _codes() for key in codes}
    first, second, third = (jax.jit(lambda x, k=k: jnp.exp(x) * k) for k in (1.0, 2.0, 3.0))
    first.lower(jnp.ones(5))
    (codes,) = _codes()
    assert {"exp", "mul"} <= kept()
    before = dict(codes)
    second.lower(jnp.ones(5))
    assert all(codes[key] is code for key, code in before.items())
    assert codes.keys() == before.keys()
    third.lower(jnp.ones(6))
    assert len(codes) > len(before)
    shared_lowering.drop()
    assert not _codes()


def test_calls_of_functions_stay_in_their_program():
    inner = jax.jit(lambda x: jnp.sin(x) * 2.0)
    jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: inner(y), x)).lower(jnp.ones(4))
    (codes,) = _codes()
    assert not {"jit", "while", "scan"} & {key.primitive.name for key in codes}


def _codes():
    return [shared["codes"] for shared in shared_lowering.SHARED.values()]
