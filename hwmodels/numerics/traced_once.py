"""Functions that many programs contain, traced once for all of them.

JAX traces a program in Python, operation by operation: for a model of many small operations that takes longer than compiling
and running it. A function that is a program of its own within others is traced, batched and differentiated once for arguments
of the same shapes, whatever program calls it; XLA puts it in its place in each, so that they run as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer

__all__ = ["traced_once"]

Result = TypeVar("Result")


def traced_once(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, a program of its own within compiled ones.

    Of its arguments, pytrees, Python numbers stay what they are: known while it is traced. Called with arrays at hand it runs
    as it is.
    """

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def once(treedef: Any, known: tuple[tuple[type, Any] | None, ...], traced: list[Any]) -> Result:
        left = iter(traced)
        leaves = [next(left) if number is None else number[1] for number in known]
        arguments, named = treedef.unflatten(leaves)
        return function(*arguments, **named)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Result:
        leaves, treedef = jax.tree.flatten((arguments, named))
        traced = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        # The type too: 1, 1.0 and True are equal.
        known = tuple(None if isinstance(leaf, Tracer) else (type(leaf), leaf) for leaf in leaves)
        if not traced or not all(number is None or number[0] in (bool, int, float) for number in known):
            return function(*arguments, **named)
        return once(treedef, known, traced)

    return call
