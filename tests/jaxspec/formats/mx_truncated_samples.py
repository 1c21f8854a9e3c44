"""What test_mx_truncated and test_mx_truncated_sizes share."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxspec.formats import mx_truncated as mx

encode = jax.jit(mx.encode, static_argnames=("block_size", "mantissa_bits", "rounding"))


decode = jax.jit(mx.decode)


def stored(values):
    return jnp.asarray(np.asarray(values, np.float32).astype(ml_dtypes.bfloat16))


def bits_of(x):
    return np.asarray(x).view(np.uint16)


def wild(seed, rows=12, columns=75):
    """Rows of any scale that bfloat16 holds, subnormal ones too, and zeros of both signs within a row."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(-134, 127, (rows, 1))
    exponent[:2] = [[-122], [-128]]
    exponent = exponent - rng.geometric(0.2, (rows, columns))
    values = np.ldexp(rng.uniform(1, 2, (rows, columns)), exponent) * rng.choice(
        [-1, 1, 1, -1, 0, -0.0], (rows, columns)
    )
    return values.astype(np.float32).astype(ml_dtypes.bfloat16)


def by_fractions(row, block_size, mantissa_bits, rounding):
    """What a row of finite values becomes, from the definition of the format and exact arithmetic alone."""
    result = []
    for start in range(0, len(row), block_size):
        block = [Fraction(float(value)) for value in row[start : start + block_size]]
        # Exponent of a magnitude, that of subnormal values being -126; a block of zeros may have any.
        exponents = [-126]
        for value in block:
            exponent = -126
            while abs(value) >= Fraction(2) ** (exponent + 1):
                exponent += 1
            exponents.append(exponent)
        step = Fraction(2) ** (max(exponents) - (mantissa_bits - 1))
        for value in block:
            steps = abs(value) / step
            steps = steps.numerator // steps.denominator if rounding == "toward_zero" else round(steps)
            steps = min(steps, 2**mantissa_bits - 1)
            result.append(float(steps * step * (1 if value >= 0 else -1)))
    return result
