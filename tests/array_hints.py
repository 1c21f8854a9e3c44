"""Shape annotations, checked in tests: what `jaxtyping.install_import_hook` hands each function of the libraries to.

Only annotations of arrays are checked, by beartype. Plain types are not: pyright reads them, and a test that passes a wrong
one wants the library's own line. NumPy arrays pass for JAX arrays, and numbers for arrays that may have no axes, as JAX
itself takes them. Tests that pass wrong arrays on purpose, to read the library's own line, carry the mark `wrong_arrays`.
"""

import functools
import types
import typing
from typing import Any

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintReturnViolation, BeartypeCallHintViolation

ARRAYS = jax.Array | np.ndarray | np.generic
_check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_sizes_of_a_call = jaxtyping.jaxtyped("context")


def jaxtyped(*, typechecker):
    """What the import hook decorates with, in place of jaxtyping's own: of ten functions nine have no arrays to check.

    Those are left as they are, and are neither made nor called through a wrapper. So are constructors: JAX rebuilds pytrees
    with anything in place of their leaves. The rest are checked from their first call on: most are not called by most tests.
    """
    del typechecker  # `checked`, always
    return lambda target: checked(target) if not isinstance(target, type) and _has_arrays(target) else target


def checked(function):
    """A function that checks the shapes and types of arrays, arguments and result, against its annotations.

    Raises:
        jaxtyping.TypeCheckError: when it is called with other arrays, or returns others.
    """
    check = functools.cache(lambda: check_arrays(function))

    @functools.wraps(function)
    def wrapper(*arguments, **named):
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        try:
            with _sizes_of_a_call:
                return check()(*arguments, **named)
        except BeartypeCallHintViolation as error:
            checking = "return value" if isinstance(error, BeartypeCallHintReturnViolation) else "parameters"
            where = f"{function.__module__}.{function.__qualname__}"
            raise jaxtyping.TypeCheckError(f"whilst checking the {checking} of {where}: {error}") from None

    return wrapper


def check_arrays(function):
    """The function as beartype checks it; the function itself if no annotation of an array is found by now."""
    hints = {name: arrays_only(_resolved(hint, function)) for name, hint in function.__annotations__.items()}
    if all(hint is Any for hint in hints.values()):
        return function
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return _check(copy)


def _has_arrays(function) -> bool:
    """Whether an annotation is one of arrays, or may turn out to be when its names are there."""
    hints = (_resolved(hint, function, unknown=None) for hint in function.__annotations__.values())
    return any(hint is None or arrays_only(hint) is not Any for hint in hints)


@functools.cache
def _expression(annotation: str):
    return compile(annotation, "<annotation>", "eval")


def _resolved(annotation, function, *, unknown=Any):
    """What an annotation says; `unknown` for one that names what is not there: for readers alone, or defined later."""
    if not isinstance(annotation, str):
        return type(None) if annotation is None else annotation
    try:
        found = eval(_expression(annotation), function.__globals__)
    except Exception:
        return unknown
    return type(None) if found is None else found


@functools.cache
def _array(dtype, axes: str):
    return dtype[ARRAYS, axes]


def arrays_only(hint: Any) -> Any:
    """An annotation as it is checked: arrays, unions with arrays, and `Any` for the rest."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        if hint.array_type not in (jax.Array, np.ndarray):
            return Any
        array = _array(hint.dtype, hint.dim_str)
        without_axes = all(axis.startswith(("*", "...")) for axis in hint.dim_str.split())
        return typing.Union[array, bool, int, float] if without_axes else array  # noqa: UP007
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [part if part in (None, type(None), int, float, bool) else arrays_only(part) for part in hint.__args__]
        return Any if Any in parts else typing.Union[tuple(parts)]  # noqa: UP007
    return Any
