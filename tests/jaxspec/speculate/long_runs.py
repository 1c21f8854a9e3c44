"""Compiling for speed, where the rest of the tests compile fast: drawing a million samples takes longer than compiling."""

from functools import partial

import jax

#: `jax.jit` with the compiler's usual optimizations.
optimized_jit = partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 2, "xla_llvm_disable_expensive_passes": False}
)
