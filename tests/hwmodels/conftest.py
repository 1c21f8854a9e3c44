"""What the tests of the hardware models share: small trees, a jit that traces once, and the check of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Architecture, Device, Footprint, MemoryTier, Workload, uniform_weight_bits


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


# No two sizes are equal and no size but the heads' is a power of two, so that a swapped factor shows.
@pytest.fixture
def small():
    return Architecture(
        num_layers=3.0,
        hidden_size=10.0,
        intermediate_size=21.0,
        num_heads=4.0,
        num_kv_heads=2.0,
        head_dim=7.0,
        vocab_size=31.0,
        tied_embeddings=0.0,
        qk_norm=0.0,
    )


@pytest.fixture
def toy_device():
    """Fast enough in computing that decoding is bound by memory and a long verification is not."""
    return Device(
        peak_flops_per_s=9e12,
        compute_efficiency=0.8,
        memory=MemoryTier(bandwidth_bytes_per_s=3e11, efficiency=0.9, capacity_bytes=5e9),
        operator_latency_s=2e-9,
    )


@pytest.fixture
def workload():
    return Workload(batch=3.0, context_tokens=117.0, prompt_tokens=53.0, output_tokens=61.0)


@pytest.fixture
def footprint():
    return Footprint(
        draft_weight_bits=uniform_weight_bits(5.1),
        target_weight_bits=uniform_weight_bits(13.9),
        draft_kv_bits=6.3,
        target_kv_bits=12.7,
    )


@pytest.fixture
def jit_once():
    """A `jit` whose function may be traced once only: new values must find the compiled one."""

    def jit(function):
        traces = []

        def counted(*arguments):
            traces.append(function)
            assert len(traces) == 1, "traced again"
            return function(*arguments)

        return jax.jit(counted)

    return jit


def check_gradient(function, tree, step=1e-4):
    """Gradient against central differences, leaf entry by leaf entry, relative to each leaf's size; needs x64.

    Leaves lie many orders of magnitude apart, so the derivative checked is the one by a factor on the leaf.
    """
    leaves, treedef = jax.tree.flatten(tree)
    # NumPy's, outside of the program: each operation of JAX would be a program of its own.
    leaves = [np.asarray(leaf, float) for leaf in leaves]
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def scaled(factors):
        parts = jnp.split(factors, sizes)
        return function(treedef.unflatten([leaf * part.reshape(leaf.shape) for leaf, part in zip(leaves, parts)]))

    ones = np.ones(sum(leaf.size for leaf in leaves))
    steps = step * np.eye(ones.size)
    # One program for values and slopes: compiling is what takes the time.
    points = np.concatenate([ones[None] + steps, ones[None] - steps, ones[None]])
    values, gradients = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(scaled)))(points))
    assert values.dtype == np.float64
    above, below = np.split(values[:-1], 2)
    differences, gradient = (above - below) / (2 * step), gradients[-1]
    floor = 1e-3 * np.max(np.abs(differences))
    assert np.all(np.abs(gradient - differences) <= 1e-2 * np.maximum(np.abs(differences), floor))
    assert np.any(differences != 0)


@pytest.fixture(name="check_gradient")
def _check_gradient(x64):
    return check_gradient
