"""What every compute unit must do, whatever it is; the tests of each unit call these with their own."""

import itertools

import chex
import jax
import jax.numpy as jnp
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


def scaled(unit, name, factor):
    """The unit with one leaf times a factor; "vector.packets_per_s" is a leaf of a leaf."""
    head, _, rest = name.partition(".")
    value = getattr(unit, head)
    return unit.replace(**{head: scaled(value, rest, factor) if rest else value * factor})


def grid(sizes):
    """m, k, n, bits and temperatures, all with all."""
    m = [*range(1, 18), 31, 32, 33, 64.5]
    columns = list(itertools.product(m, *sizes, WIDTHS, TEMPERATURES))
    return [np.array(column, np.float32) for column in zip(*columns, strict=True)]


def check_never_faster_than_the_peak(unit, sizes):
    m, k, n, bits, temperatures = grid(sizes)
    seconds = np.asarray(product_time(unit, m, k, n, bits, temperatures))
    assert seconds.shape == m.shape
    assert np.all(np.isfinite(seconds))
    assert np.all(seconds >= 2 * m * k * n / unit.peak_flops_per_s * (1 - 1e-5))


def check_rates_and_latencies(unit, sizes, rates):
    """No rate lengthens a step; all rates doubled halve it."""
    arguments = grid(sizes)
    before = product_time(unit, *arguments)
    for name in rates:
        after = product_time(scaled(unit, name, 1.3), *arguments)
        assert np.all(after <= before * (1 + 1e-6)), name
        assert np.any(after < before * 0.99), name
    fast = unit
    for name in rates:
        fast = scaled(fast, name, 2.0)
    np.testing.assert_allclose(product_time(fast, *arguments), before / 2, rtol=1e-6)
    np.testing.assert_allclose(fast.peak_flops_per_s, unit.peak_flops_per_s * 2, rtol=1e-6)


def check_more_work_takes_no_less_time(unit, sizes):
    m, k, n, bits, temperatures = grid(sizes)
    before = product_time(unit, m, k, n, bits, temperatures)
    for more in ((m * 1.3, k, n), (m, k * 1.3, n), (m, k, n * 1.3)):
        after = product_time(unit, *more, bits, temperatures)
        assert np.all(after >= before * (1 - 1e-6))
        # Fully relaxed, no count has a step to hide behind.
        assert np.all(after[temperatures == 1] > before[temperatures == 1])


def check_temperature_to_zero(unit, sizes):
    m, k, n, bits, _ = (argument[:: len(TEMPERATURES)] for argument in grid(sizes))
    exact = product_time(unit, m, k, n, bits, 0.0)
    errors = [
        np.abs(product_time(unit, m, k, n, bits, temperature) / exact - 1) for temperature in (0.3, 0.03, 1e-3, 1e-5)
    ]
    assert np.all(np.diff([np.mean(error) for error in errors]) < 0)
    assert np.max(errors[-1]) < 1e-3


def check_leaves_may_be_batches(unit, sizes):
    """A batch along any leaf, or along all of them, gives what each of its entries gives."""
    k, n = sizes[0][0], sizes[1][0]
    leaves, treedef = jax.tree.flatten(unit)
    mapped = jax.jit(jax.vmap(lambda unit: _product_time(unit, 5.0, k, n, 4.5, 0.2)))
    single = jax.jit(lambda unit: _product_time(unit, 5.0, k, n, 4.5, 0.2))
    for i in (*range(len(leaves)), None):
        batch = [
            jnp.asarray([leaf, leaf * 1.25]) if i in (j, None) else jnp.asarray([leaf, leaf])
            for j, leaf in enumerate(leaves)
        ]
        expected = [single(treedef.unflatten([leaf[b] for leaf in batch])) for b in range(2)]
        np.testing.assert_allclose(mapped(treedef.unflatten(batch)), expected, rtol=1e-5)


def check_traced_once(unit, sizes):
    k, n = sizes[0][0], sizes[1][0]

    # chex counts by name and place, all units together.
    chex.clear_trace_counter()

    def counted(unit, m, weight_bits, temperature):
        return _product_time(unit, m, k, n, weight_bits, temperature)

    traced = jax.jit(chex.assert_max_traces(counted, n=1))
    faster = jax.tree.map(lambda leaf: leaf * 1.1, unit)
    for each, m, bits, temperature in ((unit, 1.0, 16.0, 0.0), (faster, 7.0, 4.5, 0.3)):
        seconds = traced(each, m, bits, temperature)
        np.testing.assert_allclose(seconds, product_time(each, m, k, n, bits, temperature), rtol=1e-5)


def check_slopes(unit, sizes, check_gradient, further=lambda unit, m, k, n, bits, temperatures: 0.0):
    """By every leaf, size, width and the temperature, for three temperatures and two widths at once.

    The sizes are no multiples of anything, so that no count changes within the differences. `further` is another function to
    be checked, compiled together.
    """
    k, n = sizes[0][0] * 3.03, sizes[1][0] * 2.07
    weights = jnp.array([[1.0, 1.7, 2.9], [0.6, 1.3, 2.1]])

    def total(tree):
        unit, m, k, n, bits, temperature = tree
        arguments = (m, k, n, bits[:, None], temperature * jnp.array([0.0, 0.3, 1.0]))
        found = (_product_time(unit, *arguments), further(unit, *arguments))
        seconds, others = (jax.lax.broadcast_to_rank(each, 2) for each in found)
        return jnp.sum((seconds / 1e-6 + others) * weights)

    check_gradient(total, (unit, 11.3, k, n, jnp.array([4.7, 13.3]), 0.55))
