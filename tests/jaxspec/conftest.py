"""What tests of drafts share: 64-bit types on request, random networks, and the check of gradients."""

import jax
import numpy as np
import pytest
from made_results import make_entry, make_metrics  # noqa: F401 - fixtures

from jaxspec.testing.schemes import random_network


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def exact_products():
    """Accelerators multiply float32 in fewer bits by default; what is tested is the network, not the device."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(name="random_network", scope="session")
def _random_network():
    return random_network


def _flat(leaves):
    """All numbers of all leaves in one row."""
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


class GradientCheck:
    """Gradient of a scalar function against finite differences, entry by entry; needs x64.

    Each derivative must lie within 1e-2 of its difference quotient, or of a thousandth of the gradient's largest entry
    where that is more. All runs under `jit` and `vmap`, as one program that is compiled once for all points.

    Args:
        function: of a tree of 64-bit floats, and perhaps of arguments that are held fixed.
    """

    def __init__(self, function, *, step=1e-4):
        self.step = step
        found = jax.value_and_grad(function)
        over_points = lambda points, fixed: jax.vmap(lambda point: found(point, *fixed))(points)
        self.values_and_gradients = jax.jit(over_points)

    def gradients(self, points, fixed):
        """Those at a batch of points, unchecked."""
        return self.values_and_gradients(points, fixed)[1]

    def __call__(self, tree, *fixed, side=None):
        """The gradient at a point, as a tree.

        Args:
            side: tree like `tree`: 0 for central differences, +1 and -1 for one-sided ones of the same order, at a kink or
                at an end of a range. None: central everywhere.
        """
        # NumPy's, outside of the program: each operation of JAX would be a program of its own.
        leaves, treedef = jax.tree.flatten(jax.tree.map(np.asarray, tree))
        assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float64)}
        point, sizes = _flat(leaves), np.cumsum([leaf.size for leaf in leaves])[:-1]
        sides = np.zeros(point.size) if side is None else _flat(jax.tree.leaves(side))
        one_sided = sides != 0
        near, far = (np.diag(np.where(one_sided, k * sides, c)) for k, c in ((1, 1), (2, -1)))
        points = point[None] + self.step * np.concatenate([near, far, np.zeros((1, point.size))])
        parts = [
            part.reshape(-1, *leaf.shape) for part, leaf in zip(np.split(points, sizes, axis=1), leaves, strict=True)
        ]
        values, gradients = self.values_and_gradients(treedef.unflatten(parts), fixed)
        values = np.asarray(values)
        near, far, here = values[: point.size], values[point.size : -1], values[-1]
        # Central: (f(h) - f(-h)) / 2h. One-sided: (-3 f(0) + 4 f(h) - f(2h)) / 2h, mirrored on the left.
        differences = np.where(one_sided, sides * (4 * near - 3 * here - far), near - far) / (2 * self.step)
        gradient = jax.tree.map(lambda x: np.asarray(x)[-1], gradients)
        error = np.abs(_flat(jax.tree.leaves(gradient)) - differences)
        allowed = 1e-2 * np.maximum(np.abs(differences), 1e-3 * np.max(np.abs(differences)))
        worst = int(np.argmax(error - allowed))
        assert np.all(error <= allowed), f"entry {worst}: off by {error[worst]} from {differences[worst]}"
        assert np.any(differences != 0)
        return gradient


@pytest.fixture(scope="session")
def gradient_check():
    """For one function at several points, in tests that use `x64`."""
    return GradientCheck


@pytest.fixture
def check_gradient(x64):
    """For one function at one point."""
    return lambda function, tree, *, side=None: GradientCheck(function)(tree, side=side)
