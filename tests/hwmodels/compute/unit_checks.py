"""Products of compute units, compiled once for all sizes."""

import itertools

import jax
import numpy as np

#: Stored bits per weight of common formats and odd ones.
WIDTHS = (3.1, 4.5, 5.11, 8.5, 13.9, 16.0)
TEMPERATURES = (0.0, 0.1, 0.6, 1.0)


def compiled(function):
    """`function(unit, *numbers, **numbers)` under jit, in as few compilations as there are multiples of 64 numbers."""
    jitted = jax.jit(function)

    def call(unit, *numbers, **named):
        values = np.broadcast_arrays(*(np.asarray(x, np.float32) for x in (*numbers, *named.values())))
        shape, size = values[0].shape, values[0].size
        filled = [np.resize(x, -(-size // 64) * 64) for x in values]
        results = jitted(unit, *filled[: len(numbers)], **dict(zip(named, filled[len(numbers) :], strict=True)))
        return jax.tree.map(lambda result: np.asarray(result)[:size].reshape(shape), results)

    return call


def _product_time(unit, m, k, n, weight_bits, temperature):
    return unit.product_time(m, k, n, weight_bits=weight_bits, temperature=temperature)


product_time = compiled(_product_time)


def grid(sizes):
    """m, k, n, bits and temperatures, all with all."""
    m = [*range(1, 18), 31, 32, 33, 64.5]
    columns = list(itertools.product(m, *sizes, WIDTHS, TEMPERATURES))
    return [np.array(column, np.float32) for column in zip(*columns, strict=True)]
