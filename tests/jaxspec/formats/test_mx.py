import math

import gfloat
import gfloat.formats
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
NAMES = list(mx.ELEMENTS)
SOME = ["E5M2", "E2M1", "INT8"]
SUBNORMAL = np.float32(1e-45)

# Compiling is what these tests spend their time on.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
encode = jax.jit(mx.encode, static_argnames=("element", "block_size"), compiler_options=QUICKLY)
decode = jax.jit(mx.decode, compiler_options=QUICKLY)


def wild(seed, rows=40, columns=75):
    """Rows of any scale that float32 holds, subnormal ones too, values of very different size and zeros within a row."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(-150, 128, (rows, 1)) - rng.geometric(0.15, (rows, columns))
    values = np.ldexp(rng.uniform(1, 2, (rows, columns)), exponent) * rng.choice([-1, 1, 1, -1, 0], (rows, columns))
    return values.astype(np.float32)


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


def test_encoding_by_hand():
    # In units of 2^-9: the largest magnitude, 7, has exponent 2, as E2M1 has: the scale is 2^-9, code 118. Of the values 0,
    # 0.5, 1, 1.5, 2, 3, 4, 6 (codes 0 to 7): 1 is code 2; 2.5 is a tie of codes 4 and 5, to even; 7 saturates; 0.3 is nearer
    # 0.5 than 0; 0.25 is a tie, to 0 with its sign. The second block holds -3, exponent 1: scale 2^-10, -6 in its units.
    x = jnp.array([1.0, -2.5, 7.0, 0.3, -0.25, -3.0]) * 2.0**-9
    tensor = encode(x, mx.E2M1, block_size=5)
    assert tensor.scale.tolist() == [118, 117]
    assert tensor.elements.tolist() == [[2, 8 + 4, 7, 1, 8], [8 + 7, 0, 0, 0, 0]]
    np.testing.assert_array_equal(decode(tensor), np.array([1, -2, 6, 0.5, -0.0, -3]) * 2.0**-9)


def test_integers_by_hand():
    # The largest magnitude 1.99 has exponent 0: scale 2^0. Steps of 1/64: 1.99 is 127.36; -1.99 the same; 0.4921875 is 31.5, a
    # tie to 32; -1.9999 is -127.99, -128.
    x = jnp.array([1.99, -1.99, 0.4921875, -1.9999])
    tensor = encode(x, mx.INT8)
    assert tensor.scale.tolist() == [127]
    assert tensor.elements[0, :4].tolist() == [127, 256 - 127, 32, 128]
    np.testing.assert_array_equal(decode(tensor), np.array([127, -127, 32, -128]) / 64)


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


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_gfloat(name):
    x = wild(100 + NAMES.index(name))
    tensor = encode(jnp.asarray(x), mx.ELEMENTS[name])
    values = [
        list(gfloat.decode_block(GFLOAT[name], block))[: 75 - 32 * (i % 3)]
        for i, block in enumerate(all_blocks(tensor).tolist())
    ]
    np.testing.assert_array_equal(decode(tensor), np.concatenate(values).reshape(x.shape).astype(np.float32))
    quantized = gfloat.quantize_block(GFLOAT[name], x[4, 32:64].astype(np.float64), gfloat.compute_scale_amax)
    np.testing.assert_array_equal(decode(tensor)[4, 32:64], quantized.astype(np.float32))


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


@pytest.mark.parametrize("name", SOME)
def test_scale_does_not_round_up_below_a_power_of_two(name):
    element = mx.ELEMENTS[name]
    x = jnp.array([[np.nextafter(np.float32(8), np.float32(0))], [8.0], [np.nextafter(np.float32(8), np.float32(9))]])
    scale = encode(x, element).scale[:, 0] - jnp.uint8(127 - element.max_exponent)
    assert scale.tolist() == [2, 3, 3]


@pytest.mark.parametrize("name", NAMES)
def test_error_is_bounded_by_the_largest_of_the_block(name):
    x = wild(7)
    error = np.abs(np.asarray(decode(encode(jnp.asarray(x), mx.ELEMENTS[name]))).astype(np.float64) - x)
    for start in (0, 32, 64):
        largest = np.max(np.abs(x[:, start : start + 32]), axis=1, keepdims=True).astype(np.float64)
        bound = 2.0 ** -mx.ELEMENTS[name].mantissa_bits * largest
        # Below, the scale is clamped.
        assert np.all((error[:, start : start + 32] <= bound)[largest[:, 0] > 2.0**-100])


@pytest.mark.parametrize("name", ML_DTYPES)
def test_what_was_decoded_is_encoded_alike(name):
    tensor = encode(jnp.asarray(wild(8)), mx.ELEMENTS[name])
    again = encode(decode(tensor), mx.ELEMENTS[name])
    jax.tree.map(np.testing.assert_array_equal, again, tensor)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -np.nan])
def test_a_nan_or_an_infinity_makes_its_block_nan_and_no_other(name, value):
    x = np.linspace(-3, 5, 21, dtype=np.float32)
    x[9] = value
    tensor = encode(jnp.asarray(x), mx.ELEMENTS[name], block_size=8)
    assert (np.asarray(tensor.scale) == 0xFF).tolist() == [False, True, False]
    assert not np.any(tensor.elements[1])
    assert np.isnan(decode(tensor)).tolist() == [False] * 8 + [True] * 8 + [False] * 5


@pytest.mark.parametrize("name", SOME)
def test_zeros(name):
    x = jnp.array([0.0, -0.0, 0.0, SUBNORMAL])
    tensor = encode(x, mx.ELEMENTS[name], block_size=3)
    assert tensor.scale.tolist() == [0, 0]
    sign = [0, 1 << (mx.ELEMENTS[name].total_bits - 1) if name != "INT8" else 0, 0]
    assert tensor.elements[0].tolist() == sign
    np.testing.assert_array_equal(np.signbit(decode(tensor)), [False, name != "INT8", False, False])


def test_subnormal_values_survive_where_the_element_reaches_them():
    # Under the least scale 2^-127 the steps of E5M2 are 2^-143, of E4M3 2^-136: 5 x 2^-143 is 2^-141 (1 + 1/4) and stays.
    x = np.ldexp(np.array([5.0, -3.0, 0.5, 1.5], np.float32), -143)
    np.testing.assert_array_equal(decode(encode(jnp.asarray(x), mx.E5M2)), np.ldexp(np.float32([5, -3, 0, 2]), -143))
    assert not np.any(np.asarray(encode(jnp.asarray(x), mx.E4M3).elements) & 0x7F)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", ["E5M2", "INT8"])
def test_narrow_values_are_encoded_as_their_float32_values(name, dtype):
    patterns = np.random.default_rng(9).permutation(1 << 16).astype(np.uint16)
    infinity = np.array(np.inf, dtype).view(np.uint16)
    patterns = patterns[patterns & 0x7FFF < infinity]
    x = patterns[: patterns.size // 13 * 13].view(dtype).reshape(-1, 13)
    narrow = encode(jnp.asarray(x), mx.ELEMENTS[name], block_size=5)
    wide = encode(jnp.asarray(x.astype(np.float32)), mx.ELEMENTS[name], block_size=5)
    jax.tree.map(np.testing.assert_array_equal, narrow, wide)


@settings(max_examples=10)
@given(
    shape=st.sampled_from([(0,), (1,), (31,), (33,), (3, 0), (0, 5), (2, 1, 10)]),
    block_size=st.sampled_from([1, 3, 32]),
    name=st.sampled_from(NAMES),
)
def test_any_shape_and_its_bits(shape, block_size, name):
    element = mx.ELEMENTS[name]
    x = jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), jnp.float32)
    tensor = encode(x, element, block_size=block_size)
    blocks = math.ceil(shape[-1] / block_size)
    assert tensor.scale.shape == (*shape[:-1], blocks)
    assert tensor.elements.shape == (*shape[:-1], blocks, block_size)
    assert decode(tensor).shape == shape
    stored = 8 * tensor.scale.size + element.total_bits * tensor.elements.size
    assert mx.num_bits(shape, element, block_size=block_size) == stored


def test_rows_are_apart():
    x = jnp.asarray(wild(10, rows=6, columns=11)).reshape(2, 3, 11)
    together = encode(x, mx.E3M2, block_size=4)
    by_row = jax.vmap(jax.vmap(lambda row: encode(row, mx.E3M2, block_size=4)))(x)
    assert jax.tree.structure(together) == jax.tree.structure(by_row)
    jax.tree.map(np.testing.assert_array_equal, together, by_row)
    np.testing.assert_array_equal(jax.vmap(decode)(together), decode(together))


def test_bits_by_hand():
    # Rows of 37 fill two blocks of 32: 3 x 2 x (8 + 32 x 4); in blocks of 10 four: 3 x 4 x (8 + 10 x 6).
    assert mx.num_bits((3, 37), mx.E2M1) == 816
    assert mx.num_bits((3, 37), mx.E2M3, block_size=10) == 816
    assert mx.num_bits((70_000, 64_000), mx.INT8) == 70_000 * 64_000 * 8.25


def test_expected_bits_are_those_of_long_rows(check_gradient):
    for element in mx.ELEMENTS.values():
        assert mx.expected_bits(element.total_bits) == element.total_bits + 0.25
        np.testing.assert_allclose(
            mx.num_bits((10_007,), element, block_size=21) / 10_007, element.total_bits + 8 / 21, rtol=2e-3
        )
    weight = jnp.array([1.0, -0.3])
    scalar = lambda x: jnp.sum(weight * mx.expected_bits(x["element"], x["block"]))
    check_gradient(scalar, {"element": jnp.array([4.5, 8.0]), "block": jnp.array([32.0, 3.7])})


def test_wrong_shapes_and_sizes_are_refused():
    with pytest.raises(ValueError, match="a scalar has no axis"):
        encode(jnp.float32(1), mx.E4M3)
    with pytest.raises(ValueError, match="a scalar has no axis"):
        mx.num_bits((), mx.E4M3)
    for block_size in (0, -32):
        with pytest.raises(ValueError, match=f"block_size is {block_size};"):
            encode(jnp.ones(3), mx.E4M3, block_size=block_size)
    with pytest.raises(ValueError, match="int8 has no exponents"):
        encode(jnp.ones(3, jnp.int8), mx.INT8)
    with pytest.raises(ValueError, match="no number format for dtype int32"):
        encode(jnp.ones(3, jnp.int32), mx.INT8)
