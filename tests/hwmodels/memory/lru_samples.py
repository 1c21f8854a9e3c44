"""What test_lru and test_lru_steps share."""

import functools

import jax
import numpy as np

from hwmodels import memory

# Compiling is what these tests spend their time on.
jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)


zipf_popularity = jit(memory.zipf_popularity, static_argnames="num_items")


def rate(popularity, capacity, **sizes):
    """To be traced; a `jit` with options of its own may not be."""
    return memory.request_hits(popularity, capacity, **sizes).hit_rate


hit_rate = jit(rate)


def zipf(exponent, shift, num_items):
    """Popularity in plain NumPy."""
    weights = (np.arange(1, num_items + 1) + shift) ** -float(exponent)
    return weights / weights.sum()
