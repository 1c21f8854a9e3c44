"""Arrays laid out for batches: the same values and slopes, and loops over the batch in what is compiled."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics.layouts import batch_innermost

AT = jnp.array([[0.3, -2.0, 5.5], [1.5, 0.0, -0.7]])


def curved(x):
    return jnp.sum(jnp.sin(x) * x**3)


def by_columns(leaf, around=batch_innermost):
    return jnp.exp(around(jnp.stack([leaf * k for k in (1.0, 2.0, 3.0, 5.0, 7.0)], axis=-1)))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit])
def test_values_are_the_same(shape, around):
    values = jnp.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)
    np.testing.assert_array_equal(around(batch_innermost)(values), values)


@pytest.mark.device_matrix
def test_slopes_of_any_order_are_the_same():
    held = lambda x: curved(batch_innermost(x))
    transforms = (
        jax.grad,
        jax.hessian,
        lambda f: jax.vmap(jax.grad(f)),
        lambda f: jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(f)(x)))),
        lambda f: lambda x: jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(f))))(x[None]),
    )
    for transform in transforms:
        for found, expected in zip(*map(jax.tree.leaves, (transform(held)(AT), transform(curved)(AT))), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    found, expected = (jax.jvp(f, (AT,), (AT[::-1],)) for f in (held, curved))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_values_with_and_without_slopes_meet_under_vmap():
    """The batches of both stand in the same place, whichever way a transformation takes."""

    def total(constant, leaf):
        moving, fixed = (batch_innermost(jnp.stack([x] * 5, axis=-1)) for x in (leaf * constant, constant))
        return jnp.sum(jnp.stack(jnp.broadcast_arrays(moving, fixed), axis=-1))

    mapped = jax.jit(jax.vmap(total, in_axes=(0, None)))
    one = jax.jit(jax.value_and_grad(lambda leaf: jnp.sum(mapped(jnp.ones(3), leaf))))
    np.testing.assert_allclose(one(2.0), (45.0, 15.0))
    nested = jax.jit(jax.value_and_grad(lambda leaf: jnp.sum(jax.vmap(lambda x: mapped(x, leaf))(jnp.ones((2, 3))))))
    np.testing.assert_allclose(nested(2.0), (90.0, 30.0))


def layouts(around, batches, *shape):
    """Layouts of arithmetic with five columns, some of which are put in place of others, in a compiled program."""

    def total(leaf):
        columns = by_columns(leaf, around)
        put = columns.at[..., jnp.array([1, 3])].set(columns[..., jnp.array([0, 2])])
        return jnp.sum(around(jnp.sqrt(put) * columns), axis=-1)

    for _ in range(batches):
        total = jax.vmap(total)
    text = jax.jit(total).lower(jnp.ones(shape)).compile().as_text()
    return set(re.findall(r"f32\[[\d,]*\b5\]\{([\d,]+)\} sqrt", text))


@pytest.mark.device_matrix
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers choose their layouts by other reasons")
def test_the_last_axis_is_the_slow_one_of_all_batches():
    assert layouts(lambda columns: columns, 1, 64) == {"1,0"}
    assert layouts(batch_innermost, 1, 64) == {"0,1"}
    assert layouts(batch_innermost, 2, 32, 2) == {"1,0,2"}
    assert layouts(batch_innermost, 0, 64) == {"0,1"}  # batches that the arrays have themselves


def test_batches_over_several_devices_stay_where_they_are():
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ("batch",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    leaves = jax.device_put(jnp.linspace(0.1, 0.9, 8 * len(devices)), spread)
    program = jax.jit(jax.vmap(lambda leaf: jnp.sum(by_columns(leaf), axis=-1)))
    assert "all-gather" not in program.lower(leaves).compile().as_text()
    assert program(leaves).sharding.is_equivalent_to(spread, 1)
    np.testing.assert_allclose(program(leaves), jnp.sum(by_columns(np.asarray(leaves)), axis=-1), rtol=1e-6)
