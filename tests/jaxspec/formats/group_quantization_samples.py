"""What test_group_quantization and test_group_quantization_limits share."""

import jax
import numpy as np

from jaxspec.formats import group_quantization as gq

f32 = np.float32


# Optimized as users run it: a fused product and sum, or a reciprocal instead of a quotient, would show.
encode = jax.jit(gq.encode, static_argnames=("scheme", "group_size"))


decode = jax.jit(gq.decode)


def patterns(x):
    return np.asarray(x, np.float16).view(np.uint16)


def inverse(d):
    """1/d in float32, 0 for 0."""
    safe = np.where(d != 0, d, f32(1))
    return np.where(d != 0, f32(1) / safe, f32(0))[..., None]


def first_extreme(groups):
    place = np.abs(groups).argmax(-1)[..., None]
    return np.take_along_axis(groups, place, -1)[..., 0]


def plain_q4_0(groups):
    """Codes and scales as llama.cpp's reference has them: trunc(x · (1/d) + 8.5), each step rounded to float32."""
    d = (first_extreme(groups) + f32(0)) / f32(-8)
    codes = np.minimum(np.trunc(groups * inverse(d) + f32(8.5)), 15).astype(np.uint8)
    return codes, d.astype(np.float16)


def plain_integers(groups, top):
    """Codes and scales of symmetric integers up to ±top: C's roundf, half away from zero, done in float64."""
    d = np.abs(groups).max(-1) / f32(top)
    y = (groups * inverse(d)).astype(np.float64)
    return (np.sign(y) * np.floor(np.abs(y) + 0.5)).astype(np.int8), d.astype(np.float16)


def weights(groups=3000, size=32, seed=0):
    """Groups of very different sizes; a seventh on a coarse grid, so that ties and equal magnitudes occur."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((groups, size)) * np.exp(2.5 * rng.standard_normal((groups, 1)))).astype(np.float32)
    x[::7] = np.round(rng.standard_normal(x[::7].shape) * 3.0) / 4
    x[5] = 0
    return x


def check(quantized, codes, scales):
    np.testing.assert_array_equal(quantized.codes, codes.reshape(quantized.codes.shape))
    np.testing.assert_array_equal(patterns(quantized.scales), patterns(scales).reshape(quantized.scales.shape))
