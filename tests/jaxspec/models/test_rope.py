import dataclasses
import math

import numpy as np
import pytest

from jaxspec.models.rope import Llama3Scaling, Rope, rotate

THETA, HEAD_DIM = 10_000.0, 8


def inverse_frequencies(scaling=None):
    return np.asarray(Rope(THETA, scaling).frequencies(HEAD_DIM, np.array(1)))


def test_frequencies_by_hand():
    # theta^(-2i/8) for i = 0..3.
    np.testing.assert_allclose(inverse_frequencies(), [1.0, 0.1, 0.01, 0.001], rtol=1e-6)


def test_scaled_frequencies_by_hand():
    # Wavelengths 2 pi (1, 10, 100, 1000) = 6.28, 62.8, 628, 6283 positions; original context 500, so that wavelengths
    # below 500/4 = 125 are kept, above 500/1 divided by 8. Nothing falls between: only with low_freq_factor 0.5
    # (above 1000 divided) does 628 blend, with weight (500/628.3 - 0.5) / (4 - 0.5).
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 500)
    scaled = inverse_frequencies(scaling)
    np.testing.assert_allclose(scaled, [1.0, 0.1, 0.01 / 8, 0.001 / 8], rtol=1e-6)
    scaling = dataclasses.replace(scaling, low_freq_factor=0.5)
    scaled = inverse_frequencies(scaling)
    blend = (500 / (200 * math.pi) - 0.5) / 3.5
    np.testing.assert_allclose(scaled, [1.0, 0.1, 0.01 * (blend + (1 - blend) / 8), 0.001 / 8], rtol=1e-6)


def rotated(x, position):
    return np.asarray(rotate(x, np.array([[position]]), inverse_frequencies()))


def vector(seed):
    return np.random.default_rng(seed).standard_normal((1, 1, 1, 8)).astype(np.float32)


def test_a_quarter_turn_by_hand():
    # Plane (0, 4) turns by 1 radian per position: the unit vector of axis 0 becomes (cos 3, sin 3) in that plane.
    unit = np.zeros((1, 1, 1, 8), np.float32)
    unit[..., 0] = 1
    expected = np.zeros(8)
    expected[[0, 4]] = math.cos(3), math.sin(3)
    np.testing.assert_allclose(rotated(unit, 3)[0, 0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("shift", [1, 40, 301])
def test_products_depend_on_the_difference_of_positions_alone(shift):
    product = lambda p, q: (rotated(vector(1), p) * rotated(vector(2), q)).sum()
    np.testing.assert_allclose(product(7 + shift, 2 + shift), product(7, 2), rtol=1e-4)
    assert abs(product(7, 2) - product(8, 2)) > 1e-2
