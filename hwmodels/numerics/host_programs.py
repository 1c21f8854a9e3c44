"""Programs of JAX that NumPy runs, for functions that run once or twice on little data: nothing is compiled.

XLA compiles some thousands of small operations for seconds; NumPy runs them in a few dozen milliseconds, as listed in the
trace that JAX makes of the function. Numbers are those of the compiled program but for rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

__all__ = ["UnknownOperationError", "host_program"]

#: Slots of what an operation takes and gives.
_Step = tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...]]


class UnknownOperationError(NotImplementedError):
    """A program has an operation, such as a loop, that is not among those below."""


def host_program(closed: ClosedJaxpr) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """The function of arrays that a trace describes, run by NumPy.

    Raises:
        UnknownOperationError: an operation that NumPy is not asked for.
    """
    values: list[np.ndarray | None] = []

    def slot(value: np.ndarray | None = None) -> int:
        values.append(value)
        return len(values) - 1

    steps: list[_Step] = []

    def lay_out(jaxpr: Any, constants: Sequence[int], taken: Sequence[int]) -> list[int]:
        places: dict[Any, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *taken), strict=True))

        def place(of: Any) -> int:
            return slot(np.asarray(of.val, of.aval.dtype)) if hasattr(of, "val") else places[of]

        for equation in jaxpr.eqns:
            name, inputs = equation.primitive.name, [place(variable) for variable in equation.invars]
            inner = next((equation.params[key] for key in _INNER if name in _CALLS and key in equation.params), None)
            if inner is not None:
                held = [slot(np.asarray(constant)) for constant in getattr(inner, "consts", ())]
                places |= zip(equation.outvars, lay_out(getattr(inner, "jaxpr", inner), held, inputs), strict=True)
                continue
            if name not in _OPERATIONS or equation.effects:
                raise UnknownOperationError(f"NumPy does not run {name!r}")
            places |= {variable: slot() for variable in equation.outvars}
            given = tuple(places[variable] for variable in equation.outvars)
            steps.append((name, _parameters(equation), tuple(inputs), given))
        return [place(variable) for variable in jaxpr.outvars]

    constants = [slot(np.asarray(constant)) for constant in closed.consts]
    arguments = [slot() for _ in closed.jaxpr.invars]
    results = lay_out(closed.jaxpr, constants, arguments)
    used, kept = set(results), []
    for name, parameters, inputs, given in reversed(steps):
        if used.isdisjoint(given):
            continue
        last = {place for place in (*inputs, *given) if place not in used}  # nothing later reads these
        used.update(inputs)
        kept.append((functools.partial(_OPERATIONS[name], **parameters), inputs, given, tuple(last)))
    kept.reverse()

    def run(leaves: Sequence[Any]) -> list[np.ndarray]:
        held = list(values)
        for place, leaf, variable in zip(arguments, leaves, closed.jaxpr.invars, strict=True):
            aval: Any = variable.aval
            held[place] = np.asarray(leaf, aval.dtype)
        with np.errstate(all="ignore"):
            for operation, inputs, given, last in kept:
                outputs = operation(*[held[place] for place in inputs])
                if len(given) == 1:
                    held[given[0]] = outputs
                else:
                    for place, value in zip(given, outputs, strict=True):
                        held[place] = value
                for place in last:
                    held[place] = None
        return [np.asarray(held[place]) for place in results]

    return run


#: Operations that run another trace, and where they have it.
_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call")
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _parameters(equation: Any) -> dict[str, Any]:
    """Parameters of an operation, with the type of its result where JAX leaves that out or calls it otherwise."""
    typed = {"dtype": equation.outvars[0].aval.dtype} if equation.primitive.name in _TYPED else {}
    return equation.params | typed


_TYPED = ("argmax", "argmin", "bitcast_convert_type", "convert_element_type", "dot_general", "iota")


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **_: function(*arrays)


def _broadcast(x: np.ndarray, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any) -> np.ndarray:
    spread = [1] * len(shape)
    for own, there in enumerate(broadcast_dimensions):
        spread[there] = x.shape[own]
    return np.broadcast_to(x.reshape(spread), shape)


def _reduce(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda x, *, axes, **_: function(x, axis=tuple(map(int, axes)))


def _place_of(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda x, *, axes, dtype, **_: np.asarray(function(x, axis=int(axes[0]))).astype(dtype)


def _running(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def run(x: np.ndarray, *, axis: int, reverse: bool, **_: Any) -> np.ndarray:
        totals = function(np.flip(x, axis) if reverse else x, axis=axis, dtype=x.dtype)
        return np.flip(totals, axis) if reverse else totals

    return run


def _power(x: np.ndarray, *, y: int, **_: Any) -> np.ndarray:
    """By multiplications, as XLA has it."""
    power, square, left = None, x, abs(y)
    while left:
        if left & 1:
            power = square if power is None else power * square
        left >>= 1
        square = square * square if left else square
    power = np.ones_like(x) if power is None else power
    return np.reciprocal(power) if y < 0 else power


def _divide(x: np.ndarray, y: np.ndarray, **_: Any) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.divide(x, y)
    whole = np.floor_divide(x, y)
    return whole + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))


def _select(which: np.ndarray, *cases: np.ndarray, **_: Any) -> np.ndarray:
    return np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.choose(which, cases)


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray, **_: Any) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


def _pad(x: np.ndarray, value: np.ndarray, *, padding_config: Sequence[tuple[int, int, int]], **_: Any) -> np.ndarray:
    low, high, inner = ([int(axis[part]) for axis in padding_config] for part in range(3))
    spread = [size + max(size - 1, 0) * i for size, i in zip(x.shape, inner, strict=True)]
    padded = np.full([size + a + b for size, a, b in zip(spread, low, high, strict=True)], value, x.dtype)
    taken, put = [], []
    for size, edge, i, whole in zip(x.shape, low, inner, padded.shape, strict=True):
        first = -(min(edge, 0) // (i + 1))  # a negative edge cuts
        last = max(min(size, -((edge - whole) // (i + 1))), first)
        taken.append(slice(first, last))
        put.append(slice(edge + first * (i + 1), max(edge + (last - 1) * (i + 1) + 1, 0), i + 1))
    if padded.size and all(each.start < each.stop for each in taken):
        padded[tuple(put)] = x[tuple(taken)]
    return padded


def _dot(x: np.ndarray, y: np.ndarray, *, dimension_numbers: Any, dtype: Any, **_: Any) -> np.ndarray:
    (own, other), (own_batch, other_batch) = [[list(map(int, side)) for side in pair] for pair in dimension_numbers]
    left, right = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))
    for a, b in zip((*own, *own_batch), (*other, *other_batch), strict=True):
        right[b] = left[a]
    shared = [left[a] for a in own_batch]
    kept = [left[i] for i in range(x.ndim) if i not in (*own, *own_batch)]
    kept += [right[i] for i in range(y.ndim) if i not in (*other, *other_batch)]
    return np.einsum(x, left, y, right, shared + kept).astype(dtype, copy=False)


def _split(x: np.ndarray, *, sizes: Sequence[int], axis: int, **_: Any) -> Any:
    parts = np.split(x, np.cumsum([int(size) for size in sizes])[:-1], axis)
    return parts if len(parts) > 1 else parts[0]


def _unstack(x: np.ndarray, *, axis: int, **_: Any) -> Any:
    parts = list(np.moveaxis(x, axis, 0))
    return parts if len(parts) > 1 else parts[0]


def _iota(*, shape: Sequence[int], dimension: int, dtype: Any, **_: Any) -> np.ndarray:
    own = [1] * len(shape)
    own[dimension] = -1
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(own), shape)


def _slices(
    starts: np.ndarray, sizes: Sequence[int], shape: Sequence[int], *, window: Sequence[int], axes: Any, clip: bool
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Where slices of an array lie: an index for each of its axes, of all elements of the slices, and whether a slice is in it.

    Args:
        starts: "*b axis". sizes: of a slice, of every axis of the array.
        window: places of the slice's axes, without those of `collapsed`, in the elements.
        axes: of the array: those that are dropped from slices, those that starts are of, and for axes that have a batch in
            common with `starts`, theirs and its.
        clip: move slices into the array.
    """
    collapsed, started, own_batch, start_batch = ([int(axis) for axis in each] for each in axes)
    batch, count = starts.shape[:-1], starts.ndim - 1 + len(window)
    behind = [place for place in range(count) if place not in window]

    def over(places: Sequence[int], values: np.ndarray) -> np.ndarray:
        whole = [1] * count
        for place, size in zip(places, values.shape, strict=True):
            whole[place] = size
        return values.reshape(whole)

    inside = np.ones(over(behind, np.empty(batch)).shape, bool)
    kept = iter(window)
    indices = []
    for axis, (size, end) in enumerate(zip(sizes, shape, strict=True)):
        index = np.zeros([1] * count, np.int64)
        if axis in started:
            start = over(behind, starts[..., started.index(axis)].astype(np.int64))
            within = np.clip(start, 0, end - size)
            inside &= start == within
            index = within if clip else start
        elif axis in own_batch:
            place = start_batch[own_batch.index(axis)]
            index = over([behind[place]], np.arange(batch[place]))
        if axis not in collapsed and axis not in own_batch:
            index = index + over([next(kept)], np.arange(size))
        indices.append(np.clip(index, 0, max(end - 1, 0)))
    return tuple(indices), inside


def _clipped(mode: Any) -> bool:
    return jax.lax.GatherScatterMode.from_any(mode) != jax.lax.GatherScatterMode.FILL_OR_DROP


def _gather(
    x: np.ndarray, starts: np.ndarray, *, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> np.ndarray:
    of = dimension_numbers
    axes = of.collapsed_slice_dims, of.start_index_map, of.operand_batching_dims, of.start_indices_batching_dims
    clip = _clipped(mode)
    where, inside = _slices(
        starts, list(map(int, slice_sizes)), x.shape, window=list(map(int, of.offset_dims)), axes=axes, clip=clip
    )
    gathered = x[where]
    if clip or inside.all():
        return gathered
    if fill_value is None:
        fill_value = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).min if x.dtype.kind == "i" else True
    return np.where(inside, gathered, np.asarray(fill_value, x.dtype))


def _scatter(put: Callable[..., None]) -> Callable[..., np.ndarray]:
    def run(
        x: np.ndarray, starts: np.ndarray, updates: np.ndarray, *, dimension_numbers: Any, mode: Any, **_: Any
    ) -> np.ndarray:
        of = dimension_numbers
        axes = (
            of.inserted_window_dims,
            of.scatter_dims_to_operand_dims,
            of.operand_batching_dims,
            of.scatter_indices_batching_dims,
        )
        window = list(map(int, of.update_window_dims))
        sizes, kept = [1] * x.ndim, iter(window)
        for axis in range(x.ndim):
            if axis not in (*of.inserted_window_dims, *of.operand_batching_dims):
                sizes[axis] = updates.shape[next(kept)]
        where, inside = _slices(starts, sizes, x.shape, window=window, axes=axes, clip=_clipped(mode))
        inside = np.broadcast_to(inside, updates.shape)
        out = np.array(x)
        put(out, tuple(np.broadcast_to(index, updates.shape)[inside] for index in where), updates[inside])
        return out

    return run


def _sort(*arrays: np.ndarray, dimension: int, num_keys: int, **_: Any) -> Any:
    order = np.lexsort(arrays[num_keys - 1 :: -1], axis=dimension)
    sorted_arrays = [np.take_along_axis(each, order, dimension) for each in arrays]
    return sorted_arrays if len(sorted_arrays) > 1 else sorted_arrays[0]


def _by_element(function: Callable[[float], float]) -> Callable[..., np.ndarray]:
    apply = np.vectorize(function, otypes=[np.float64])
    return lambda x, **_: apply(x).astype(x.dtype)


def _bitcast(x: np.ndarray, *, dtype: Any, **_: Any) -> np.ndarray:
    if x.dtype.itemsize != np.dtype(dtype).itemsize:
        raise UnknownOperationError("NumPy keeps the width of what it reads anew")
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape)


def _leading_zeros(x: np.ndarray, **_: Any) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    return (width - np.frexp(x.astype(np.float64))[1]).astype(x.dtype)  # exact up to 32 bits


def _shifted(shift: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def run(x: np.ndarray, by: np.ndarray, **_: Any) -> np.ndarray:
        bits = x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x
        inside = by.astype(np.int64) < 8 * x.dtype.itemsize
        return (
            np.where(inside, shift(bits, np.where(inside, by, 0).astype(bits.dtype)), 0)
            .astype(bits.dtype)
            .view(x.dtype)
        )

    return run


_same = _plain(lambda x: x)

#: JAX's name of an operation -> what NumPy does.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("batch_innermost", "copy", "copy_p", "name", "stop_gradient"), _same),
    **{
        name: _plain(getattr(np, name))
        for name in ("abs", "ceil", "cos", "exp", "exp2", "expm1", "floor", "log", "log1p")
    },
    **{name: _plain(getattr(np, name)) for name in ("sign", "sin", "sqrt", "square", "tanh")},
    "add": _plain(np.add),
    "add_any": _plain(np.add),
    "and": _plain(np.bitwise_and),
    "argmax": _place_of(np.argmax),
    "argmin": _place_of(np.argmin),
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "clamp": _clamp,
    "clz": _leading_zeros,
    "concatenate": lambda *arrays, dimension, **_: np.concatenate(arrays, dimension),
    "convert_element_type": lambda x, *, dtype, **_: x.astype(dtype),
    "cummax": _running(lambda x, *, axis, dtype: np.maximum.accumulate(x, axis)),
    "cummin": _running(lambda x, *, axis, dtype: np.minimum.accumulate(x, axis)),
    "cumprod": _running(np.cumprod),
    "cumsum": _running(np.cumsum),
    "div": _divide,
    "dot_general": _dot,
    "eq": _plain(np.equal),
    "erf": _by_element(math.erf),
    "erfc": _by_element(math.erfc),
    "gather": _gather,
    "ge": _plain(np.greater_equal),
    "gt": _plain(np.greater),
    "integer_pow": _power,
    "iota": _iota,
    "is_finite": _plain(np.isfinite),
    "le": _plain(np.less_equal),
    "logistic": _plain(lambda x: 1 / (1 + np.exp(-x))),
    "lt": _plain(np.less),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "mul": _plain(np.multiply),
    "ne": _plain(np.not_equal),
    "neg": _plain(np.negative),
    "not": _plain(np.invert),
    "or": _plain(np.bitwise_or),
    "pad": _pad,
    "pow": _plain(np.power),
    "reduce_and": _reduce(np.all),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_or": _reduce(np.any),
    "reduce_prod": _reduce(np.prod),
    "reduce_sum": lambda x, *, axes, **_: np.sum(x, axis=tuple(map(int, axes)), dtype=x.dtype),
    "rem": _plain(np.fmod),
    "reshape": lambda x, *, new_sizes, **_: x.reshape(new_sizes),
    "rev": lambda x, *, dimensions, **_: np.flip(x, tuple(map(int, dimensions))),
    "round": lambda x, *, rounding_method, **_: (
        np.rint(x) if int(rounding_method) == 1 else np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)
    ),
    "rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    "scatter": _scatter(lambda out, where, updates: out.__setitem__(where, updates)),
    "scatter-add": _scatter(np.add.at),
    "select_n": _select,
    "shift_left": _shifted(np.left_shift),
    "shift_right_logical": _shifted(np.right_shift),
    "slice": lambda x, *, start_indices, limit_indices, strides, **_: x[
        tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))
    ],
    "sort": _sort,
    "split": _split,
    "squeeze": lambda x, *, dimensions, **_: np.squeeze(x, tuple(map(int, dimensions))),
    "stack": lambda *arrays, axis, **_: np.stack(arrays, axis),
    "sub": _plain(np.subtract),
    "transpose": lambda x, *, permutation, **_: np.transpose(x, permutation),
    "unstack": _unstack,
    "xor": _plain(np.bitwise_xor),
}
