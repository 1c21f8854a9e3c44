import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import group_quantization as gq
from jaxspec.formats.code_tables import FP4, INT4, IQ4_NL, NF4

f32 = np.float32

# Optimized as users run it: a fused product and sum, or a reciprocal instead of a quotient, would show.
encode = jax.jit(gq.encode, static_argnames=("scheme", "group_size"))
decode = jax.jit(gq.decode)


def shapes_of(x, scheme, group_size=32):
    return jax.eval_shape(lambda x: gq.encode(x, scheme, group_size=group_size), x)


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


def plain_table(groups, table):
    """Codes and scales for a table: all distances, the last of the smallest among rising levels."""
    levels = np.array(table.levels)
    if levels.max() == -levels.min():
        d = np.abs(groups).max(-1) / f32(levels.max())
    else:
        d = first_extreme(groups) / f32(levels[np.abs(levels).argmax()])
    d = d + f32(0)  # no -0
    order = np.argsort(levels, kind="stable")
    distance = np.abs((groups * inverse(d)).astype(np.float64)[..., None] - levels[order])
    return order[15 - distance[..., ::-1].argmin(-1)], d.astype(np.float16)


def weights(groups=3000, size=32, seed=0):
    """Groups of very different sizes; a seventh on a coarse grid, so that ties and equal magnitudes occur."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((groups, size)) * np.exp(2.5 * rng.standard_normal((groups, 1)))).astype(np.float32)
    x[::7] = np.round(rng.standard_normal(x[::7].shape) * 3.0) / 4
    x[5] = 0
    return x


def near_ties(groups=2000, seed=1):
    """Groups whose values lie within a few float32 steps of where one code ends and the next begins."""
    rng = np.random.default_rng(seed)
    d = rng.uniform(0.02, 0.9, (groups, 1)).astype(np.float32)
    x = ((rng.integers(0, 16, (groups, 32)) - 7.5) * d).astype(np.float32)
    x = (x.view(np.int32) + rng.integers(-9, 10, x.shape, dtype=np.int32)).view(np.float32)
    x[:, :1] = -8 * d
    return x


def check(quantized, codes, scales):
    np.testing.assert_array_equal(quantized.codes, codes.reshape(quantized.codes.shape))
    np.testing.assert_array_equal(patterns(quantized.scales), patterns(scales).reshape(quantized.scales.shape))


def test_q4_0_by_hand():
    # The largest magnitude is 4, first met as +4: d = 4 / -8 = -1/2, 1/d = -2. Codes are trunc(-2x + 8.5):
    # 4 -> 0.5 -> 0; -4 -> 16.5 -> 15 (the most); 0 -> 8; 0.25 -> 8.0 -> 8; -0.25 -> 9.0 -> 9; 1.7 -> 5.1 -> 5.
    x = jnp.zeros(32).at[3:9].set(jnp.array([4.0, -4.0, 0.0, 0.25, -0.25, 1.7]))
    quantized = encode(x)
    expected = [8] * 32
    expected[3:9] = [0, 15, 8, 8, 9, 5]
    assert np.asarray(quantized.codes).tolist() == expected
    assert quantized.scales.tolist() == [-0.5]
    # (code - 8) / -2: the -4 is cut to -3.5, 1.7 becomes 1.5, the tie -0.25 becomes -0.5.
    np.testing.assert_array_equal(decode(quantized)[3:9], [4, -3.5, 0, 0, -0.5, 1.5])


def test_bytes_of_q4_0_by_hand():
    # Codes 0..15 and then 15..0, scale -0.5 = 0xB800, low byte first: byte i is i + 16 (15 - i).
    codes = jnp.asarray([[*range(16), *reversed(range(16))]], jnp.uint8)
    blocks = gq.pack_q4_0(gq.GroupQuantized(codes, jnp.asarray([[-0.5]], jnp.float16), INT4, 4, 32))
    assert blocks.dtype == jnp.uint8
    assert np.asarray(blocks).tolist() == [[[0x00, 0xB8, *(i + 16 * (15 - i) for i in range(16))]]]


def test_bytes_of_q8_0_by_hand():
    # Scale 1.5 = 0x3E00; codes -16..15 in two's complement: 240..255, 0..15.
    codes = jnp.arange(-16, 16, dtype=jnp.int8)
    blocks = gq.pack_q8_0(gq.GroupQuantized(codes, jnp.asarray([1.5], jnp.float16), None, 8, 32))
    assert np.asarray(blocks).tolist() == [[0x00, 0x3E, *range(240, 256), *range(16)]]


@pytest.mark.parametrize("make", [weights, near_ties])
def test_q4_0_is_the_plain_implementation(make):
    x = make()
    check(encode(jnp.asarray(x), "q4_0"), *plain_q4_0(x))


def test_some_q4_0_ties_are_lifted_by_the_float32_sum():
    # 0.49999997 + 8.5 is 9 in float32: code 9, where the nearest is 8. The table's own encoder takes the nearest.
    x = np.zeros(32, np.float32)
    x[:2] = [-8, np.nextafter(f32(0.5), f32(0))]
    assert np.asarray(encode(jnp.asarray(x), "q4_0").codes)[1] == 9
    assert np.asarray(encode(jnp.asarray(x), INT4).codes)[1] == 8
    x = near_ties()
    lifted = np.asarray(encode(jnp.asarray(x), "q4_0").codes) - np.asarray(encode(jnp.asarray(x), INT4).codes)
    assert set(np.unique(lifted)) == {0, 1}


@pytest.mark.parametrize("make", [weights, near_ties])
def test_q8_0_is_the_plain_implementation(make):
    x = make()
    check(encode(jnp.asarray(x), "q8_0"), *plain_integers(x, 127))


@pytest.mark.parametrize(("scheme", "top"), [("int4", 7), ("q8_0", 127)])
def test_integers_tie_away_from_zero(scheme, top):
    x = np.zeros(32, np.float32)
    x[:8] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, np.nextafter(np.float32(0.5), np.float32(0)), -top]
    quantized = encode(jnp.asarray(x), scheme)
    assert quantized.scales.tolist() == [1]
    assert np.asarray(quantized.codes)[:8].tolist() == [1, 2, 3, -1, -2, -3, 0, -top]


@pytest.mark.parametrize(("scheme", "top"), [("int4", 7), ("int8", 127), ("q8_0", 127)])
def test_a_scale_is_divided_and_not_multiplied_by_a_reciprocal(scheme, top):
    # Largest magnitudes whose scale is just between two float16: it goes to the even one, and half a float32 step of error
    # would decide otherwise.
    middles = np.arange(1025, 3071, 2) / 2048
    x = np.zeros((middles.size, 32), np.float32)
    x[:, 4] = -middles * top
    np.testing.assert_array_equal(x[:, 4], -middles * top)
    scales = np.asarray(encode(jnp.asarray(x), scheme).scales)[:, 0]
    np.testing.assert_array_equal(patterns(scales), patterns(middles.astype(np.float16)))


@pytest.mark.parametrize(("scheme", "top", "bits"), [("int4", 7, 4), ("int8", 127, 8)])
def test_a_scale_per_channel(scheme, top, bits):
    x = weights(40, 77, seed=3)
    quantized = encode(jnp.asarray(x), scheme, group_size=None)
    check(quantized, *plain_integers(x, top))
    assert quantized.scales.shape == (40, 1)
    assert np.abs(quantized.codes).max() == top
    assert gq.num_bits(quantized) == 40 * (77 * bits + 16)


@pytest.mark.parametrize(
    ("table", "size"), [(INT4, 12), (FP4, 32), (NF4, 12), (IQ4_NL, 32)], ids=["int4", "fp4", "nf4", "iq4_nl"]
)
def test_tables_are_the_plain_implementation(table, size):
    x = weights(400, size, seed=5)
    quantized = encode(jnp.asarray(x), table, group_size=size)
    codes, scales = plain_table(x, table)
    # Of equal levels (FP4's zeros) the lower code is given.
    check(quantized, np.where((codes == 8) & (table == FP4), 0, codes), scales)


def test_decoding_is_level_times_scale():
    x = weights(6, 64, seed=6)
    for scheme in ("q4_0", "int4", NF4):
        quantized = encode(jnp.asarray(x), scheme)
        codes = np.asarray(quantized.codes).astype(int)
        levels = codes if quantized.table is None else np.array(quantized.table.levels, np.float32)[codes]
        scales = np.repeat(np.asarray(quantized.scales, np.float32), 32, axis=-1)
        np.testing.assert_array_equal(decode(quantized), levels.astype(np.float32) * scales)


@pytest.mark.parametrize(("scheme", "steps"), [("q4_0", 1), ("int4", 0.5), ("q8_0", 0.5)])
def test_the_error_is_at_most_half_a_step(scheme, steps):
    # A whole step at the far end of Q4_0, where +8 is cut to +7. Float16 adds up to 127 · 2^-11 steps to the largest code.
    x = weights(seed=7)
    x = x[np.abs(x).max(-1) > 1e-2]
    quantized = encode(jnp.asarray(x), scheme)
    error = np.abs(np.asarray(decode(quantized), np.float64) - x) / np.abs(np.asarray(quantized.scales, np.float64))
    assert steps * 0.98 < error.max() < steps + 127 * 2**-11


def test_smaller_groups_err_less():
    x = weights(300, 96, seed=8)
    errors = [np.mean((decode(encode(jnp.asarray(x), "int4", group_size=g)) - x) ** 2) for g in (96, 3)]
    assert errors == sorted(errors, reverse=True)


def test_bits_per_weight():
    x = jnp.zeros((6, 96))
    assert gq.num_bits(shapes_of(x, "q4_0")) == 4.5 * x.size
    assert gq.num_bits(shapes_of(x, "q8_0")) == 8.5 * x.size
    # One scale for 24 codes of 4 bits.
    assert gq.num_bits(shapes_of(x, NF4, 24)) == x.size * 4 + x.size // 24 * 16
    # The bytes are all there is.
    assert 8 * jax.eval_shape(gq.pack_q4_0, shapes_of(x, "q4_0")).size == 4.5 * x.size
    assert 8 * jax.eval_shape(gq.pack_q8_0, shapes_of(x, "q8_0")).size == 8.5 * x.size


def test_64_bit_types_change_nothing():
    x = weights(40, 64, seed=10)
    with jax.enable_x64(True):
        for scheme, plain in (("q4_0", plain_q4_0), ("q8_0", lambda groups: plain_integers(groups, 127))):
            quantized = encode(jnp.asarray(x.astype(np.float64)), scheme)
            check(quantized, *plain(x.reshape(40, 2, 32)))
            assert decode(quantized).dtype == jnp.float32


def test_a_group_of_zeros():
    # llama.cpp divides 0 by -8, whatever the zeros' signs: the stored scale is -0.
    for x in (jnp.asarray([-0.0, 0.0] * 16), jnp.asarray([0.0, -0.0] * 16)):
        assert patterns(encode(x, "q4_0").scales).tolist() == [0x8000]
        assert np.asarray(encode(x, "q4_0").codes).tolist() == [8] * 32
    for scheme in ("q8_0", FP4, IQ4_NL):
        np.testing.assert_array_equal(decode(encode(x, scheme)), 0)


def test_scales_that_float16_does_not_hold():
    ones = np.ones(32, np.float32)
    # 65519 · 8 still gives the largest float16, 65520 · 8 infinity, and what is decoded from it is no number or infinite.
    for top, scale in ((65519, 65504), (65520, np.inf)):
        quantized = encode(jnp.asarray(-8 * top * ones), "q4_0")
        assert quantized.scales.tolist() == [scale]
        assert np.asarray(quantized.codes).tolist() == [0] * 32
    np.testing.assert_array_equal(decode(quantized), -np.inf)
    assert np.all(np.isnan(decode(encode(jnp.asarray(-8 * 65520 * np.eye(32, dtype=np.float32)[0]), "q4_0"))[1:]))
    # 2^-24 is the smallest float16; half of it rounds to the even zero, and so the group is zero.
    for top, scale in ((2.0**-24, 2.0**-24), (2.0**-25, 0), (1.5 * 2.0**-24, 2.0**-23), (2.0**-120, 0)):
        quantized = encode(jnp.asarray(127 * top * ones), "q8_0")
        assert quantized.scales.tolist() == [scale]
        np.testing.assert_array_equal(decode(quantized), 127 * scale * ones)
        assert np.asarray(quantized.codes).tolist() == [127] * 32
    # Below float32's normal numbers a scale counts as zero.
    quantized = encode(jnp.asarray(2.0**-120 * ones), "q8_0")
    assert (quantized.scales.tolist(), quantized.codes.tolist()) == ([0], [0] * 32)


def test_scale_stays_rounded_when_encoding_and_decoding_are_one_program():
    x = jnp.asarray(weights(seed=9))
    for scheme in ("q4_0", "q8_0"):
        together = jax.jit(lambda x, scheme=scheme: gq.decode(gq.encode(x, scheme)))(x)
        np.testing.assert_array_equal(together, decode(encode(x, scheme)))


@pytest.mark.parametrize("shape", [(96,), (3, 0), (2, 3, 32)])
def test_bytes_there_and_back(shape):
    x = jnp.asarray(np.random.default_rng(11).normal(0.2, 1, shape), jnp.float32)
    for scheme, pack, unpack in (("q4_0", gq.pack_q4_0, gq.unpack_q4_0), ("q8_0", gq.pack_q8_0, gq.unpack_q8_0)):
        quantized = encode(x, scheme)
        blocks = jax.jit(pack)(quantized)
        assert blocks.shape == (*shape[:-1], shape[-1] // 32, 18 if scheme == "q4_0" else 34)
        back = jax.jit(unpack)(blocks)
        check(back, np.asarray(quantized.codes), np.asarray(quantized.scales))
        assert jax.tree.structure(back) == jax.tree.structure(quantized)


def test_any_bytes_survive():
    rng = np.random.default_rng(12)
    blocks = rng.integers(256, size=(700, 34), dtype=np.uint8)
    there_and_back = jax.jit(lambda b: gq.pack_q8_0(gq.unpack_q8_0(b)))
    np.testing.assert_array_equal(there_and_back(blocks), blocks)
    there_and_back = jax.jit(lambda b: gq.pack_q4_0(gq.unpack_q4_0(b)))
    np.testing.assert_array_equal(there_and_back(blocks[:, :18]), blocks[:, :18])


@settings(max_examples=5)
@given(
    lead=st.sampled_from([(), (1,), (3,), (2, 3), (0,)]),
    groups=st.integers(0, 4),
    size=st.integers(1, 37),
    scheme=st.sampled_from(["int4", "int8", NF4, FP4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(lead, groups, size, scheme, seed):
    x = np.random.default_rng(seed).normal(0.1, 1, (*lead, groups, size)).astype(np.float32)
    quantized = encode(jnp.asarray(x.reshape(*lead, groups * size)), scheme, group_size=size)
    assert quantized.codes.shape == (*lead, groups * size)
    assert quantized.scales.shape == (*lead, groups)
    bits = 8 if scheme == "int8" else 4
    assert gq.num_bits(quantized) == x.size * bits + x.size // size * 16
    decoded = np.asarray(decode(quantized)).reshape(x.shape)
    assert np.all(np.abs(decoded - x) <= np.abs(x).max(-1, keepdims=True, initial=0) * 0.2)


def test_vmap_is_the_whole():
    x = jnp.asarray(weights(6, 64, seed=13))
    for scheme in ("q4_0", IQ4_NL):
        batched = jax.vmap(lambda row, scheme=scheme: encode(row, scheme))(x)
        check(batched, np.asarray(encode(x, scheme).codes), np.asarray(encode(x, scheme).scales))
        np.testing.assert_array_equal(jax.vmap(decode)(batched), decode(batched))


@pytest.mark.parametrize("scheme", ["q4_0", "q8_0", IQ4_NL], ids=["q4_0", "q8_0", "iq4_nl"])
def test_gradient_is_that_of_the_scale(scheme, jit):
    # Decoded values are fixed levels times a scale that follows the group's largest magnitude: d decoded / d extreme.
    x = np.random.default_rng(14).normal(size=32).astype(np.float32)
    extreme = np.abs(x).argmax()
    weight = np.random.default_rng(15).normal(size=32).astype(np.float32)
    total = lambda x: jnp.sum(jnp.asarray(weight) * gq.decode(gq.encode(x, scheme)))
    quantized = encode(jnp.asarray(x), scheme)
    codes = np.asarray(quantized.codes).astype(int)
    levels = codes if quantized.table is None else np.array(quantized.table.levels)[codes]
    expected = np.zeros(32)
    expected[extreme] = np.dot(weight, levels) * float(quantized.scales[0]) / x[extreme]
    gradient = jit(jax.vmap(jax.grad(total)))(jnp.asarray(np.stack([x, -2 * x])))
    np.testing.assert_allclose(gradient, [expected, expected], rtol=3e-3)


def test_a_group_of_zeros_has_a_finite_gradient(jit):
    gradient = jit(jax.grad(lambda x: jnp.sum(gq.decode(gq.encode(x, "q4_0")) ** 2)))(jnp.zeros(32))
    np.testing.assert_array_equal(gradient, 0)


def test_decoding_is_linear_in_the_scales(jit):
    rng = np.random.default_rng(16)
    codes, weight = rng.integers(16, size=(3, 20), dtype=np.uint8), rng.normal(size=(3, 20)).astype(np.float32)
    total = lambda scales: jnp.sum(weight * gq.decode(gq.GroupQuantized(jnp.asarray(codes), scales, IQ4_NL, 4, 5)))
    expected = (weight * np.array(IQ4_NL.levels)[codes]).reshape(3, 4, 5).sum(-1)
    for scales in (jnp.full((3, 4), 0.75), jnp.zeros((3, 4))):
        np.testing.assert_allclose(jit(jax.grad(total))(scales), expected, rtol=1e-5, atol=1e-4)


def test_expected_size_is_the_size_and_its_gradient_is_right(check_gradient):
    x = jnp.zeros((6, 96))
    for scheme, bits, size in (("q4_0", 4, 32), ("int8", 8, 24), (NF4, 4, 12)):
        expected = gq.expected_bits(jnp.float32(x.size), jnp.float32(bits), group_size=size)
        np.testing.assert_allclose(expected, gq.num_bits(shapes_of(x, scheme, size)), rtol=1e-6)
    # Between two widths lies the mean of their sizes.
    middle, below, above = (gq.expected_bits(jnp.float32(100), jnp.float32(b)) for b in (4.5, 4, 5))
    np.testing.assert_allclose(middle, (below + above) / 2)
    tree = {"n": jnp.array([30.0, 7.5]), "b": jnp.array([4.0, 6.3]), "g": jnp.array([32.0, 9.7])}
    check_gradient(lambda t: jnp.sum(gq.expected_bits(t["n"], t["b"], group_size=t["g"])), tree)


def test_what_is_refused():
    x = np.ones((2, 96), np.float32)
    with pytest.raises(ValueError, match=r"scheme 'q5_0'.*'q8_0'"):
        gq.encode(x, "q5_0")
    with pytest.raises(ValueError, match="q4_0 in groups of 48"):
        gq.encode(x, "q4_0", group_size=48)
    with pytest.raises(ValueError, match="96 elements in groups of 7"):
        gq.encode(x, "int8", group_size=7)
    with pytest.raises(ValueError, match="groups of 0"):
        gq.encode(x[:, :0], "int8", group_size=None)
    with pytest.raises(ValueError, match="table 'int4'"):
        gq.pack_q4_0(shapes_of(x, NF4))
    with pytest.raises(ValueError, match="8 bits: encode"):
        gq.pack_q8_0(shapes_of(x, "int4"))
    with pytest.raises(ValueError, match="18 bytes"):
        gq.unpack_q4_0(np.zeros((4, 34), np.uint8))
