import jax.numpy as jnp
import numpy as np
import pytest
from group_quantization_samples import (
    check,
    decode,
    encode,
    f32,
    first_extreme,
    inverse,
    plain_integers,
    plain_q4_0,
    weights,
)

from jaxspec.formats import group_quantization as gq
from jaxspec.formats.code_tables import FP4, INT4, IQ4_NL, NF4


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


def near_ties(groups=2000, seed=1):
    """Groups whose values lie within a few float32 steps of where one code ends and the next begins."""
    rng = np.random.default_rng(seed)
    d = rng.uniform(0.02, 0.9, (groups, 1)).astype(np.float32)
    x = ((rng.integers(0, 16, (groups, 32)) - 7.5) * d).astype(np.float32)
    x = (x.view(np.int32) + rng.integers(-9, 10, x.shape, dtype=np.int32)).view(np.float32)
    x[:, :1] = -8 * d
    return x


@pytest.mark.scheme_matrix
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


@pytest.mark.scheme_matrix
def test_bytes_of_q4_0_by_hand():
    # Codes 0..15 and then 15..0, scale -0.5 = 0xB800, low byte first: byte i is i + 16 (15 - i).
    codes = jnp.asarray([[*range(16), *reversed(range(16))]], jnp.uint8)
    blocks = gq.pack_q4_0(gq.GroupQuantized(codes, jnp.asarray([[-0.5]], jnp.float16), INT4, 4, 32))
    assert blocks.dtype == jnp.uint8
    assert np.asarray(blocks).tolist() == [[[0x00, 0xB8, *(i + 16 * (15 - i) for i in range(16))]]]


@pytest.mark.parametrize("make", [weights, near_ties])
def test_q4_0_is_the_plain_implementation(make):
    x = make()
    check(encode(jnp.asarray(x), "q4_0"), *plain_q4_0(x))


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


@pytest.mark.parametrize(
    ("table", "size"), [(INT4, 12), (FP4, 32), (NF4, 12), (IQ4_NL, 32)], ids=["int4", "fp4", "nf4", "iq4_nl"]
)
def test_tables_are_the_plain_implementation(table, size):
    x = weights(400, size, seed=5)
    quantized = encode(jnp.asarray(x), table, group_size=size)
    codes, scales = plain_table(x, table)
    # Of equal levels (FP4's zeros) the lower code is given.
    check(quantized, np.where((codes == 8) & (table == FP4), 0, codes), scales)


@pytest.mark.scheme_matrix
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
