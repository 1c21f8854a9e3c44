"""`jax.jit` for programs that run a few times on little data, as those that price single designs.

On a CPU, LLVM spends most of the time that such a program takes on making it fast. Told not to, it compiles in less than half
of the time; the program then runs several times slower, in milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

import jax

__all__ = ["quick_jit"]

Result = TypeVar("Result")

#: Of XLA. The old emitters compile faster; releases that are not known to have the option are not asked for them.
_QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    **({"xla_cpu_use_fusion_emitters": False} if version("jaxlib").startswith("0.10.") else {}),
}


def quick_jit(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function compiled as a whole, quickly on a CPU; not for use within another compiled function.

    Arrays of NumPy are taken for those of JAX. Results differ from those of `jax.jit` by rounding.
    """

    @functools.cache
    def compiled() -> Callable[..., Result]:  # the backend is known by the first call, not by the import
        return jax.jit(function, compiler_options=_QUICKLY if jax.default_backend() == "cpu" else None)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Result:
        return compiled()(*arguments, **named)

    return call
