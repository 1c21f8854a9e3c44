"""`jax.jit` for programs that run a few times on little data, as those that price single designs.

On a CPU, LLVM spends most of the time that such a program takes on making it fast. Told not to, it compiles in less than half
of the time; the program then runs several times slower, in milliseconds.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from hwmodels.numerics.fields import AMOUNT, CHANCE, check_number, check_numbers, check_types
from hwmodels.numerics.host_programs import UnknownOperationError, host_program

__all__ = ["in_small_program", "jit_fast_compile", "priced_at_once", "run_on_host"]

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
    """Whether a program of `jit_fast_compile` is being traced: a map over an axis then makes it smaller than a loop would, and
    in others a loop makes it faster. Results are the same but for rounding. Part of the key that a trace is cached under."""
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


def jit_fast_compile(function: Callable[..., Result]) -> Callable[..., Result]:
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


def _dtype(leaf: Any) -> np.dtype:
    return leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)


def run_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced once per structure of its arguments and run by NumPy: what it gives are arrays of NumPy.

    For programs that run once or twice in a process on little data: nothing is compiled. A program with a loop, which NumPy is
    not asked for, is one of `jit_fast_compile`. Results differ from those of `jax.jit` by rounding.

    Raises:
        ValueError: as of `jit_fast_compile`.
    """
    compiled, programs = jit_fast_compile(function), {}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        leaves, treedef = jax.tree.flatten((arguments, named))
        numbers = tuple((np.shape(leaf), _dtype(leaf), isinstance(leaf, (bool, int, float))) for leaf in leaves)
        key = treedef, numbers, jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        if key not in programs:
            with jax.disable_jit():  # functions of `jnp` need no program each
                traced = jax.jit(_small(function)).trace(*arguments, **named)
            try:
                programs[key] = host_program(traced.jaxpr), jax.tree.structure(traced.out_info)
            except UnknownOperationError:
                programs[key] = None
        if programs[key] is None:
            return jax.device_get(compiled(*arguments, **named))
        _check(arguments, named)
        run, structure = programs[key]
        return structure.unflatten(run(leaves))

    return call


#: Numbers beside the trees of functions that price.
_NAMED = {"temperature": CHANCE, "tokens_per_cycle": AMOUNT}


def priced_at_once(function: Function) -> Function:
    """The function, compiled as a whole by `jit_fast_compile` unless it is called within a program that is compiled anyway.

    Of its arguments, pytrees, every number is traced: new values compile nothing anew, other structures and static fields do.
    `vmap` and `grad` without `jit` map and differentiate the compiled program; within `jit` it is part of that program.
    """
    alone, mapped = jit_fast_compile(function), jax.jit(function)
    names = tuple(inspect.signature(function).parameters)

    @functools.cache
    def trees() -> dict[str, Any]:  # once all modules are imported
        return {name: kind for name, kind in get_type_hints(function).items() if dataclasses.is_dataclass(kind)}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        check_types(trees(), dict(zip(names, arguments), **named))
        for name in _NAMED.keys() & named.keys():
            check_number(name, named[name], _NAMED[name])
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


def _check(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    for place, argument in enumerate(arguments):
        check_numbers(argument, type(argument).__name__ if dataclasses.is_dataclass(argument) else f"argument {place}")
    check_numbers(named)
