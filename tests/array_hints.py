"""Shape annotations, checked in tests: what `jaxtyping.install_import_hook` hands each function of the libraries to.

Only annotations of arrays are checked, by beartype. Plain types are not: pyright reads them, and a test that passes a wrong
one wants the library's own line. NumPy arrays pass for JAX arrays, and numbers for arrays that may have no axes, as JAX
itself takes them. Tests that pass wrong arrays on purpose, to read the library's own line, carry the mark `wrong_arrays`.
"""

import types
import typing
from typing import Any

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype

ARRAYS = jax.Array | np.ndarray | np.generic
_check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(*, typechecker):
    """What the import hook decorates with, in place of jaxtyping's own: of ten functions nine have no arrays to check.

    Those are left as they are, and are neither made nor called through a wrapper.
    """
    check = _jaxtyped(typechecker=typechecker)
    return lambda target: check(target) if isinstance(target, type) or _has_arrays(target) else target


def _has_arrays(function) -> bool:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # an annotation for readers, or one whose names come later: jaxtyping knows more
        return True
    return any(arrays_only(hint) is not Any for hint in hints.values())


def check_arrays(function):
    """A function that checks the shapes and types of arrays, arguments and result, against its annotations.

    Constructors are left alone: JAX rebuilds pytrees with anything in place of their leaves.
    """
    if function.__name__ in ("__init__", "__new__"):
        return function
    hints = {name: arrays_only(hint) for name, hint in function.__annotations__.items()}
    if all(hint is Any for hint in hints.values()):
        return function
    function.__annotations__ = hints
    return _check(function)


def arrays_only(hint: Any) -> Any:
    """An annotation as it is checked: arrays, unions with arrays, and `Any` for the rest."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        if hint.array_type not in (jax.Array, np.ndarray):
            return Any
        array = hint.dtype[ARRAYS, hint.dim_str]
        without_axes = all(axis.startswith(("*", "...")) for axis in hint.dim_str.split())
        return typing.Union[array, bool, int, float] if without_axes else array  # noqa: UP007
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [part if part in (None, type(None), int, float, bool) else arrays_only(part) for part in hint.__args__]
        return Any if Any in parts else typing.Union[tuple(parts)]  # noqa: UP007
    return Any
