import gfloat
import gfloat.formats
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from mx_samples import NAMES, decode, encode, wild

from jaxspec.formats import mx

GFLOAT = {
    "E4M3": gfloat.formats.format_info_mxfp8_e4m3,
    "E5M2": gfloat.formats.format_info_mxfp8_e5m2,
    "E3M2": gfloat.formats.format_info_mxfp6_e3m2,
    "E2M3": gfloat.formats.format_info_mxfp6_e2m3,
    "E2M1": gfloat.formats.format_info_mxfp4_e2m1,
    "INT8": gfloat.formats.format_info_mxint8,
}


ML_DTYPES = {
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "E3M2": ml_dtypes.float6_e3m2fn,
    "E2M3": ml_dtypes.float6_e2m3fn,
    "E2M1": ml_dtypes.float4_e2m1fn,
}


def gfloat_blocks(x, name, block_size):
    """Codes of gfloat, block by block, its scale first; float64 throughout, in which scaling is exact."""
    info = GFLOAT[name]
    for row in x.astype(np.float64):
        for start in range(0, row.size, block_size):
            block = np.zeros(block_size)
            block[: row.size - start] = row[start : start + block_size]
            scale = gfloat.compute_scale_amax(info.etype.emax, block)
            yield list(gfloat.encode_block(info, scale, block / scale))


def all_blocks(tensor):
    return np.concatenate([np.asarray(tensor.scale)[..., None], np.asarray(tensor.elements)], axis=-1).reshape(
        -1, 1 + tensor.elements.shape[-1]
    )


@pytest.mark.scheme_matrix
def test_encoding_by_hand():
    # In units of 2^-9: the largest magnitude, 7, has exponent 2, as E2M1 has: the scale is 2^-9, code 118. Of the values 0,
    # 0.5, 1, 1.5, 2, 3, 4, 6 (codes 0 to 7): 1 is code 2; 2.5 is a tie of codes 4 and 5, to even; 7 saturates; 0.3 is nearer
    # 0.5 than 0; 0.25 is a tie, to 0 with its sign. The second block holds -3, exponent 1: scale 2^-10, -6 in its units.
    x = jnp.array([1.0, -2.5, 7.0, 0.3, -0.25, -3.0]) * 2.0**-9
    tensor = encode(x, mx.E2M1, block_size=5)
    assert tensor.scale.tolist() == [118, 117]
    assert tensor.elements.tolist() == [[2, 8 + 4, 7, 1, 8], [8 + 7, 0, 0, 0, 0]]
    np.testing.assert_array_equal(decode(tensor), np.array([1, -2, 6, 0.5, -0.0, -3]) * 2.0**-9)


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block_size", [32, 7])
def test_codes_are_those_of_gfloat(name, block_size):
    x = wild(NAMES.index(name) + block_size)
    tensor = encode(jnp.asarray(x), mx.ELEMENTS[name], block_size=block_size)
    expected = np.array(list(gfloat_blocks(x, name, block_size)))
    np.testing.assert_array_equal(all_blocks(tensor), expected)
    # Subnormal float32 values and clamped scales must be among them.
    assert np.any((np.abs(x) < np.finfo(np.float32).tiny) & (x != 0))
    assert np.any(expected[:, 0] == 0)
    assert np.any(expected[:, 0] > 200)


@pytest.mark.parametrize("name", ML_DTYPES)
def test_codes_are_those_of_ml_dtypes(name):
    element, dtype = mx.ELEMENTS[name], ML_DTYPES[name]
    x = wild(200 + NAMES.index(name), rows=2000, columns=96).reshape(-1, 32)
    # Optimised, as users run it.
    tensor = jax.jit(mx.encode, static_argnums=1)(jnp.asarray(x), element)
    wide = x.astype(np.float64)
    largest = np.max(np.abs(wide), axis=1, keepdims=True)
    exponent = np.where(largest > 0, np.frexp(largest)[1] - 1 - element.max_exponent, -127).clip(-127, 127)
    scale = np.ldexp(1.0, exponent)
    np.testing.assert_array_equal(tensor.scale, scale.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8))
    limit = float(ml_dtypes.finfo(dtype).max)
    codes = np.clip(wide / scale, -limit, limit).astype(dtype)
    np.testing.assert_array_equal(tensor.elements[:, 0], codes.view(np.uint8))


@pytest.mark.parametrize("name", ML_DTYPES)
def test_all_codes_under_all_scales_decode_as_in_ml_dtypes(name):
    element = mx.ELEMENTS[name]
    codes = np.arange(1 << element.total_bits, dtype=np.uint8)
    scales = np.arange(256, dtype=np.uint8)
    tensor = mx.MXTensor(
        scale=jnp.asarray(scales[:, None]),
        elements=jnp.asarray(np.broadcast_to(codes, (256, 1, codes.size))),
        element=element,
        columns=codes.size,
    )
    wide = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)[:, None] * codes.view(ML_DTYPES[name]).astype(
        np.float64
    )
    with np.errstate(over="ignore"):
        expected = wide.astype(np.float32)
    # Bit for bit, subnormal results and the signs of zeros and infinities included; of NaNs, that they are.
    result = np.asarray(jax.jit(mx.decode)(tensor))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(result[finite].view(np.uint32), expected[finite].view(np.uint32))


def test_all_integer_codes_under_all_scales():
    codes, scales = np.arange(256, dtype=np.uint8), np.arange(255, dtype=np.uint8)
    elements = jnp.asarray(np.broadcast_to(codes, (255, 1, 256)))
    tensor = mx.MXTensor(scale=jnp.asarray(scales[:, None]), elements=elements, element=mx.INT8, columns=256)
    wide = np.ldexp(codes.view(np.int8) / 64, scales.astype(int)[:, None] - 127)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(decode(tensor), wide.astype(np.float32))
    # One product is too large for float32.
    assert np.isneginf(decode(tensor)).sum() == 1


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("name", NAMES)
def test_every_midpoint_goes_to_the_even_code(name):
    element = mx.ELEMENTS[name]
    codes = np.arange(element.max_code + 1)
    # The largest value stands in every block of two, so that the scale is 2^-3 everywhere.
    values = np.asarray(
        decode(
            mx.MXTensor(
                jnp.full((codes.size, 1), 124, jnp.uint8), jnp.asarray(codes[:, None, None], jnp.uint8), element, 1
            )
        )
    )[:, 0]
    middle = (values[1:] + values[:-1]) / 2
    pairs = np.stack([np.full_like(middle, values[-1]), -middle], axis=1)
    tensor = encode(jnp.asarray(pairs), element, block_size=2)
    np.testing.assert_array_equal(tensor.scale[:, 0], 124)
    even = codes[:-1] + codes[:-1] % 2
    got = np.asarray(tensor.elements)[:, 0, 1]
    got = got - 2 ** (element.total_bits - 1) if element.exponent_bits else -got.view(np.int8)
    np.testing.assert_array_equal(got, even)
