"""Numbers: pytree leaves, units, smooth maxima, folds of products onto arrays."""

from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.smoothing import smooth_maximum

__all__ = [
    "jit_fast_compile",
    "smooth_maximum",
]
