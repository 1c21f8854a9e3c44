"""Programs that NumPy runs: every operation gives what XLA gives, and what NumPy is not asked for is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hwmodels.numerics import host_programs
from hwmodels.numerics.fast_compile import run_on_host
from hwmodels.numerics.host_programs import UnknownOperationError, host_program

_RANDOM = np.random.default_rng(3)
X = _RANDOM.normal(size=(3, 5, 4)).astype(np.float32)
Y = _RANDOM.normal(size=(3, 4, 7)).astype(np.float32)
WHOLE = _RANDOM.integers(-40, 40, (3, 5)).astype(np.int32)
BY = np.array([[1, -3, 7, 2, -5]] * 3, np.int32)
AT = np.array([[2, 0], [-1, 3], [1, 9]], np.int32)  # the last two partly outside
ARRAYS = X, Y, WHOLE, BY, AT

_DROP, _FILL = {"mode": "drop"}, {"mode": "fill"}

PROGRAMS = {
    "reductions": lambda x, y, whole, by, at: [f(x, axis=(0, 2)) for f in (jnp.sum, jnp.max, jnp.min, jnp.prod)],
    "places": lambda x, y, whole, by, at: [
        jnp.argmax(x, 1),
        jnp.argmin(x, 2),
        jnp.argmax(jnp.asarray([1.0, jnp.nan, 2.0])),
    ],
    "truth": lambda x, y, whole, by, at: [
        jnp.any(x > 1, 0),
        jnp.all(x > 1, 1),
        ~(x > 0) ^ (x < 1),
        (x > 0) | (x < 1),
        x != x,
        x >= 1,
        x <= y[0, 0, 0],
    ],
    "running": lambda x, y, whole, by, at: [
        f(x, axis=1, reverse=r) for r in (False, True) for f in (lax.cumsum, lax.cumprod, lax.cummax)
    ],
    "running least": lambda x, y, whole, by, at: lax.cummin(x, axis=2),
    "curves": lambda x, y, whole, by, at: [
        f(jnp.abs(x)) for f in (jnp.sqrt, jnp.log, jnp.log1p, lax.rsqrt, jnp.exp2, jnp.square)
    ],
    "signed curves": lambda x, y, whole, by, at: [
        f(x) for f in (jnp.exp, jnp.expm1, jnp.tanh, jnp.sin, jnp.cos, jnp.sign, jax.nn.sigmoid)
    ],
    "errors": lambda x, y, whole, by, at: [lax.erf(x), lax.erfc(x), jax.scipy.stats.norm.cdf(x)],
    "rounded": lambda x, y, whole, by, at: [
        jnp.round(x * 4 + 0.5),
        jnp.floor(x),
        jnp.ceil(x),
        lax.round(x * 2, lax.RoundingMethod(0)),
    ],
    "powers": lambda x, y, whole, by, at: [x**2, x**-3, x**0, jnp.abs(x) ** 1.7, jnp.isfinite(1 / (x - x))],
    "whole numbers": lambda x, y, whole, by, at: [
        whole // by,
        whole % by,
        lax.div(whole, by),
        lax.rem(whole, by),
        jnp.abs(whole),
        -whole,
    ],
    "bits": lambda x, y, whole, by, at: [
        lax.bitcast_convert_type(x, jnp.uint32) >> 9,
        lax.shift_left(np.uint16(3), np.uint16(15)) | np.uint16(1),
        lax.shift_right_logical(whole, np.int32(3)),
        lax.shift_left(np.uint32(3), np.uint32(32)),
        lax.clz(np.array([0, 1, 3, 255, 2**31, 2**32 - 1], np.uint32)),
        lax.clz(np.array([0, 1, 255, 65535], np.uint16)),
    ],
    "sorted": lambda x, y, whole, by, at: [
        jnp.sort(x, 1),
        jnp.argsort(-whole, 1),
        *lax.sort((whole // 9, whole, by), num_keys=2),
    ],
    "shapes": lambda x, y, whole, by, at: [
        jnp.reshape(x, (5, 12)),
        jnp.transpose(x, (2, 0, 1)),
        x[:, None, 1:4:2],
        x[..., ::-1],
        jnp.stack([x, x * 2], 1),
        *jnp.split(x, [1, 4], 1),
        *jnp.unstack(x, axis=2),
        jnp.concatenate([x, x], 2),
        jnp.broadcast_to(x[0], (2, 5, 4)),
        lax.clamp(-0.5, x, 0.5),
        jnp.minimum(x, jnp.maximum(x[::-1], 0.1)),
    ],
    "padded": lambda x, y, whole, by, at: [
        lax.pad(x, 2.0, [each, (1, -1, 0), (0, 0, 1)]) for each in ((0, 0, 0), (2, 1, 2), (-3, 2, 1), (-1, -1, 1))
    ],
    "products": lambda x, y, whole, by, at: [
        jnp.einsum("bij,bjk->bik", x, y),
        jnp.einsum("bij,bjk->ki", x, y),
        lax.dot_general(x, y, (((2, 0), (1, 0)), ((), ()))),
        x[0] @ y[0],
    ],
    "taken": lambda x, y, whole, by, at: [
        x[at[:, 0]],
        x[at[:, 0], at[:, 1] % 5],
        jnp.take(x, at, axis=1, mode="clip"),
        jnp.take(x, at, axis=1, **_FILL),
        jnp.take(whole, at, axis=1, **_FILL),
        jnp.take_along_axis(x, at[:, :1, None], axis=1),
        jax.vmap(lambda row, here: lax.dynamic_slice(row, (here[0], here[1]), (2, 3)))(x, at),
        jax.vmap(lambda row, here: row[here])(x, at[:, 0]),
    ],
    "put": lambda x, y, whole, by, at: [
        jnp.asarray(x).at[at[:, 0]].set(1.0),
        jnp.asarray(x).at[:, at[:, 1]].add(2.0, **_DROP),
        jnp.asarray(x).at[at[:, 0], at[:, 1]].add(2.0),
        jnp.zeros(4).at[np.array([1, 1, 3])].add(1.0),
        jax.vmap(lambda row, here: row.at[here].set(0.0))(x, at[:, 0]),
    ],
    "slopes": lambda x, y, whole, by, at: jax.grad(
        lambda z: jnp.sum(jnp.where(z > 0, jnp.logaddexp(z, 1.0), z[..., ::-1]) ** 2)
    )(x),
    "calls": lambda x, y, whole, by, at: [
        jax.nn.relu(x),
        jax.checkpoint(jnp.sin)(x),
        jnp.select([x > 1, x > 0], [x, -x], 2.0),
    ],
    "cases": lambda x, y, whole, by, at: [lax.select_n(whole % 3, by, whole, -by), lax.select_n(x > 0, x, -x)],
    "counted": lambda x, y, whole, by, at: [
        jnp.arange(7) * 2,
        lax.broadcasted_iota(jnp.float32, (2, 3), 1),
        jnp.eye(3),
    ],
}


@pytest.mark.parametrize("inner_programs", [True, False], ids=["calls", "inlined"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_gives_what_xla_gives(name, inner_programs):
    with jax.disable_jit(not inner_programs):
        traced = jax.jit(PROGRAMS[name]).trace(*ARRAYS)
    found = host_program(traced.jaxpr)(ARRAYS)
    expected = jax.tree.leaves(jax.jit(PROGRAMS[name])(*ARRAYS))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_every_operation_of_the_table_is_tried():
    used = set()
    for name in PROGRAMS:
        for inlined in (True, False):
            with jax.disable_jit(inlined):
                _gather_names(jax.make_jaxpr(PROGRAMS[name])(*ARRAYS).jaxpr, used)
    unseen = set(host_programs._OPERATIONS) - used
    assert unseen <= {"add_any", "batch_innermost", "copy", "copy_p", "name", "stop_gradient"}


def test_a_loop_is_compiled_instead():
    def total(x):
        return lax.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, state[1] * 2), (0, x))[1]

    with pytest.raises(UnknownOperationError, match="while"):
        host_program(jax.make_jaxpr(total)(X[0]))
    found = run_on_host(total)(X[0])
    np.testing.assert_array_equal(found, 8 * X[0])


def test_one_trace_serves_all_values_of_a_structure():
    traces = []

    @run_on_host
    def function(tree, *, scale):
        traces.append(scale)
        return {"y": tree["x"] * scale, "z": jnp.sum(tree["x"])}

    for factor in (1.0, 2.5, np.float32(3)):
        found = function({"x": X}, scale=factor)
        np.testing.assert_allclose(found["y"], X * np.float32(factor))
        assert isinstance(found["z"], np.ndarray)
    assert len(traces) == 2  # Python's numbers, then NumPy's
    function({"x": X[0]}, scale=1.0)
    assert len(traces) == 3


def _gather_names(jaxpr, names):
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                _gather_names(inner, names)
