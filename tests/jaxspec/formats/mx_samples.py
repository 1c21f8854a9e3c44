"""What test_mx and test_mx_limits share."""

import jax
import numpy as np

from jaxspec.formats import mx

NAMES = list(mx.ELEMENTS)


SOME = ["E5M2", "E2M1", "INT8"]


encode = jax.jit(mx.encode, static_argnames=("element", "block_size"))


decode = jax.jit(mx.decode)


def wild(seed, rows=40, columns=75):
    """Rows of any scale that float32 holds, subnormal ones too, values of very different size and zeros within a row."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(-150, 128, (rows, 1)) - rng.geometric(0.15, (rows, columns))
    values = np.ldexp(rng.uniform(1, 2, (rows, columns)), exponent) * rng.choice([-1, 1, 1, -1, 0], (rows, columns))
    return values.astype(np.float32)
