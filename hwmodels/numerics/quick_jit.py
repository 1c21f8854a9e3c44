"""`jax.jit` for programs that run a few times on little data, as those that price single designs.

On a CPU, LLVM spends most of the time that such a program takes on making it fast. Told not to, it compiles in less than half
of the time; the program then runs several times slower, in milliseconds.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import dataclasses
import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from hwmodels.numerics.fields import check_numbers

__all__ = ["in_small_program", "priced_at_once", "quick_jit", "run_together"]

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

#: Of XLA. The old emitters compile faster; releases that are not known to have the option are not asked for them.
_QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    # One module for LLVM: what it does per module outweighs what further threads save.
    "xla_cpu_parallel_codegen_split_count": 1,
    **({"xla_cpu_use_fusion_emitters": False} if version("jaxlib").startswith("0.10.") else {}),
}


#: Whether a program that runs a few times on little data is traced.
_SMALL = contextvars.ContextVar("small", default=False)


def in_small_program() -> bool:
    """Whether what is traced now is a program of `quick_jit`: a map over an axis then makes it smaller than a loop would, and
    in others a loop makes it faster. Results are the same but for rounding. Part of the key of what a trace is kept under."""
    return _SMALL.get()


def _small(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, traced as a small program."""

    @functools.wraps(function)
    def traced(*arguments: Any, **named: Any) -> Result:
        token = _SMALL.set(True)
        try:
            return function(*arguments, **named)
        finally:
            _SMALL.reset(token)

    return traced


def quick_jit(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function compiled as a whole, quickly on a CPU; not for use within another compiled function.

    Arrays of NumPy are taken for those of JAX. Results differ from those of `jax.jit` by rounding.

    Raises:
        ValueError: a number of a device, or of what else states rules for its numbers, breaks its rule.
    """

    @functools.cache
    def compiled() -> Callable[..., Result]:  # the backend is known by the first call, not by the import
        return jax.jit(_small(function), compiler_options=_QUICKLY if jax.default_backend() == "cpu" else None)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Result:
        _check(arguments, named)
        return compiled()(*arguments, **named)

    return call


def priced_at_once(function: Function) -> Function:
    """The function, compiled as a whole by `quick_jit` unless it is called within a program that is compiled anyway.

    Of its arguments, pytrees, every number is traced: new values compile nothing anew, other structures and static fields do.
    `vmap` and `grad` without `jit` map and differentiate the compiled program; within `jit` it is part of that program.
    """
    alone, mapped = quick_jit(function), jax.jit(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if isinstance(jnp.zeros(()), Tracer):  # within `jit` even a constant is one
            _check(arguments, named)
            return function(*arguments, **named)
        # Python's whole numbers would have to fit 32 bits as arguments.
        floats = lambda leaf: float(leaf) if type(leaf) is int else leaf
        arguments, named = jax.tree.map(floats, (arguments, named))
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, named))):
            _check(arguments, named)
            return mapped(*arguments, **named)  # only programs at the top take options
        return alone(*arguments, **named)

    return call  # pyright: ignore[reportReturnType]


def run_together(*calls: tuple[Any, ...]) -> list[Any]:
    """Results of compiled functions that are traced one after the other and compiled side by side.

    Args:
        calls: of each a function of `quick_jit`, then its arguments.
    """
    first, *others = calls
    with concurrent.futures.ThreadPoolExecutor(max(len(others), 1)) as pool:
        later = [pool.submit(function, *arguments) for function, *arguments in others]
        return [first[0](*first[1:]), *(each.result() for each in later)]


def _check(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    for place, argument in enumerate(arguments):
        check_numbers(argument, type(argument).__name__ if dataclasses.is_dataclass(argument) else f"argument {place}")
    check_numbers(named)
