import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import bit_packing

WIDTHS = range(1, 17)


@pytest.fixture(scope="module")
def codec(jit):
    """`pack` and `unpack` that compile fast; one compilation for each width and length."""
    return jit(bit_packing.pack, static_argnames="width"), jit(bit_packing.unpack, static_argnames=("width", "count"))


def words_in_plain_python(values, width):
    """The fields written as text, then cut into words."""
    text = "".join(f"{value % (1 << width):0{width}b}" for value in np.asarray(values).tolist())
    text += "0" * (-len(text) % 32)
    return [int(text[i : i + 32], 2) for i in range(0, len(text), 32)]


def test_a_few_fields_by_hand(codec):
    pack, unpack = codec
    # 001 010 011, then zeros: 0010 1001 1000 0000 ...
    assert pack(jnp.array([1, 2, 3], jnp.uint8), width=3).tolist() == [0x29800000]
    # Seven fields of five bits are 35: 11111 00000 11111 00000 11111 00000 10|101, so the last one lies in two words.
    values = jnp.array([31, 0, 31, 0, 31, 0, 0b10101], jnp.uint8)
    words = pack(values, width=5)
    assert words.tolist() == [0xF83E0F82, 0xA0000000]
    assert unpack(words, width=5, count=7).tolist() == values.tolist()
    # Two of 16 bits fill a word, the first in its upper half.
    assert pack(jnp.array([0xABCD, 0x1234, 0xF], jnp.uint16), width=16).tolist() == [0xABCD1234, 0x000F0000]


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_against_plain_python(width, codec):
    pack, unpack = codec
    rng = np.random.default_rng(width)
    # Two groups of 32 and a rest.
    values = rng.integers(1 << width, size=77).astype(np.uint16)
    words = pack(jnp.asarray(values), width=width)
    assert words.dtype == jnp.uint32
    assert words.tolist() == words_in_plain_python(values, width)
    np.testing.assert_array_equal(unpack(words, width=width, count=77), values)


@pytest.mark.parametrize("width", [5, 16])
def test_all_16_bit_values(width, codec):
    pack, unpack = codec
    values = jnp.arange(1 << 16, dtype=jnp.uint16)
    words = pack(values, width=width)
    np.testing.assert_array_equal(unpack(words, width=width, count=1 << 16), np.asarray(values) & ((1 << width) - 1))


@pytest.mark.scheme_matrix
@settings(max_examples=60)
@given(
    # One, whole groups, several groups less one.
    form=st.sampled_from(
        [(1, 1, np.uint8), (1, 13, np.uint16), (64, 7, np.uint8), (255, 3, np.uint16), (255, 13, np.uint32)]
    ),
    seed=st.integers(0, 2**32 - 1),
    largest=st.sampled_from([0, 1, 2**32 - 1]),
)
def test_round_trip(codec, form, seed, largest):
    count, width, dtype = form
    # `largest` 0 and 1: one symbol alone, and long runs.
    values = np.random.default_rng(seed).integers(largest, size=count, dtype=np.uint32, endpoint=True).astype(dtype)
    pack, unpack = codec
    words = pack(jnp.asarray(values), width=width)
    assert words.tolist() == words_in_plain_python(values, width)
    found = unpack(words, width=width, count=count)
    np.testing.assert_array_equal(found, values & dtype((1 << width) - 1))
    assert found.dtype == jnp.uint16


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("width", [1, 9, 16])
def test_nothing_packs_to_nothing(width):
    words = bit_packing.pack(jnp.zeros(0, jnp.uint8), width=width)
    assert words.shape == (0,)
    assert bit_packing.unpack(words, width=width, count=0).shape == (0,)
    assert bit_packing.num_bits(0, width) == 0


@pytest.mark.scheme_matrix
def test_size_is_that_of_the_words(codec):
    pack, _ = codec
    # 13 x 5 = 65 bits reach into a third word; 32 x 5 = 160 bits are five words exactly.
    assert bit_packing.num_words(13, 5) == 3
    assert bit_packing.num_bits(13, 5) == 96
    assert bit_packing.num_bits(32, 5) == 160
    for count, width in ((1, 1), (31, 7), (77, 12)):
        words = pack(jnp.zeros(count, jnp.uint16), width=width)
        assert bit_packing.num_bits(count, width) == 8 * words.nbytes
        expected = float(bit_packing.expected_bits(jnp.float32(count), jnp.float32(width)))
        assert 0 <= 8 * words.nbytes - expected < 32


def test_gradient_of_the_expected_size(check_gradient):
    point = {"count": jnp.array([5.5, 0.0, 300.0]), "width": jnp.array([3.25, 7.0, 16.0])}
    gradient = check_gradient(lambda x: jnp.sum(bit_packing.expected_bits(x["count"], x["width"])), point)
    np.testing.assert_allclose(gradient["width"], point["count"])


@pytest.mark.scheme_matrix
def test_under_vmap(jit):
    values = np.random.default_rng(3).integers(1 << 6, size=(3, 45)).astype(np.uint8)
    words = jit(jax.vmap(lambda row: bit_packing.pack(row, width=6)))(jnp.asarray(values))
    assert words.tolist() == [words_in_plain_python(row, 6) for row in values]
    found = jit(jax.vmap(lambda row: bit_packing.unpack(row, width=6, count=45)))(words)
    np.testing.assert_array_equal(found, values)


def test_new_values_do_not_trace_anew(jit):
    pack = jit(chex.assert_max_traces(lambda x: bit_packing.pack(x, width=5), n=1))
    unpack = jit(chex.assert_max_traces(lambda x: bit_packing.unpack(x, width=5, count=9), n=1))
    for values in (np.zeros(9), np.arange(9), np.full(9, 31)):
        words = pack(jnp.asarray(values, jnp.uint16))
        np.testing.assert_array_equal(unpack(words), values)


@pytest.mark.parametrize("width", [0, 17, -3])
def test_other_widths_are_refused(width):
    with pytest.raises(ValueError, match=rf"width {width} came.*1 to 16"):
        bit_packing.pack(jnp.zeros(3, jnp.uint16), width=width)
    with pytest.raises(ValueError, match=rf"width {width} came"):
        bit_packing.unpack(jnp.zeros(3, jnp.uint32), width=width, count=3)
