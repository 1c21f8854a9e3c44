import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import bit_packing

WIDTHS = range(1, 17)


@pytest.fixture(scope="module")
def codec():
    """`pack` and `unpack` that compile fast; one compilation for each width and length."""
    return jax.jit(bit_packing.pack, static_argnames="width"), jax.jit(
        bit_packing.unpack, static_argnames=("width", "count")
    )


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
