import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats import group_quantization as gq
from jaxspec.formats import tile_layout
from jaxspec.formats.code_tables import IQ4_NL

to_tiles = jax.jit(tile_layout.to_tiles)
from_tiles = jax.jit(tile_layout.from_tiles, static_argnames="shape")
encode = jax.jit(tile_layout.encode, static_argnames=("scheme", "group_size"))
decode = jax.jit(tile_layout.decode)
pack = jax.jit(tile_layout.pack_super_groups)
RAGGED = (70, 45)


def place(row, column, rows):
    """Index of an element: tile by tile down the columns of tiles, two rows interleaved inside."""
    tile = (column // 32) * -(-rows // 32) + row // 32
    r, c = row % 32, column % 32
    return 1024 * tile + 64 * (r // 2) + 2 * c + r % 2


def test_by_hand():
    # Rows 0 and 1 of the first tile alternate; row 2 begins at 64. Below 70 rows lie three tiles to a column of tiles, so
    # column 32 begins at 3072, and element (33, 40) at 1024 · 4 + 2 · 8 + 1 = 4113.
    matrix = np.arange(70 * 45, dtype=np.int32).reshape(RAGGED) + 1
    flat = np.asarray(to_tiles(jnp.asarray(matrix)))
    assert flat.shape == (96 * 64,)
    assert flat[:4].tolist() == [matrix[0, 0], matrix[1, 0], matrix[0, 1], matrix[1, 1]]
    assert flat[64] == matrix[2, 0]
    assert flat[3072] == matrix[0, 32]
    assert flat[4113] == matrix[33, 40]


@pytest.mark.parametrize("shape", [RAGGED, (32, 96), (1, 33), (65, 1)])
def test_every_element_lies_where_the_formula_says(shape):
    matrix = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(np.int32) + 1
    expected = np.zeros(np.prod(tile_layout.padded_shape(shape)), np.int32)
    for row, column in np.ndindex(shape):
        expected[place(row, column, shape[0])] = matrix[row, column]
    np.testing.assert_array_equal(to_tiles(jnp.asarray(matrix)), expected)


@pytest.mark.scheme_matrix
@settings(max_examples=8)
@given(
    shape=st.sampled_from([(0, 5), (1, 1), (31, 33), (64, 32), (5, 100), (97, 2)]),
    lead=st.sampled_from([(), (3,), (0,), (2, 1)]),
    dtype=st.sampled_from([np.float32, np.float16, np.uint8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_there_and_back(shape, lead, dtype, seed):
    matrix = np.random.default_rng(seed).integers(1, 200, (*lead, *shape)).astype(dtype)
    flat = to_tiles(jnp.asarray(matrix))
    padded = tile_layout.padded_shape(shape)
    assert flat.shape == (*lead, padded[0] * padded[1])
    back = from_tiles(flat, shape=shape)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, matrix)
    assert np.count_nonzero(flat) == matrix.size


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("scheme", ["q8_0", IQ4_NL], ids=["q8_0", "iq4_nl"])
def test_quantization_is_that_of_blocks(scheme):
    matrix = np.random.default_rng(2).normal(0.01, 1, RAGGED).astype(np.float32)
    quantized = encode(jnp.asarray(matrix), scheme)
    padded = np.pad(matrix, [(0, 26), (0, 19)])
    decoded = np.zeros_like(padded)
    for row in range(0, 96, 2):
        for column in range(0, 64, 16):
            block = padded[row : row + 2, column : column + 16]
            group = gq.decode(
                jax.jit(gq.encode, static_argnames="scheme")(jnp.asarray(block.T.reshape(-1)), scheme=scheme)
            )
            decoded[row : row + 2, column : column + 16] = np.asarray(group).reshape(16, 2).T
    np.testing.assert_array_equal(decode(quantized), decoded[:70, :45])
    assert quantized.shape == RAGGED


def test_a_register_by_hand():
    # Element 64p + e is the low half of byte 2e + p, element 128 + 64p + e the high half.
    codes = np.zeros(256, np.uint8)
    codes[[0, 1, 64, 70, 128, 200]] = [3, 5, 7, 9, 11, 13]
    packed = np.asarray(pack(jnp.asarray(codes)))
    assert packed.shape == (1, 128)
    # Byte 0: 3 low and 11 high (e = 0, p = 0); byte 1: 7; byte 2: 5; byte 13: 9; byte 17 (200 = 128 + 64 + 8): 13 high.
    assert packed[0, [0, 1, 2, 13, 17]].tolist() == [3 + 16 * 11, 7, 5, 9, 16 * 13]
    assert np.count_nonzero(packed) == 5


def test_every_code_of_a_register_lies_where_it_should():
    codes = np.random.default_rng(4).integers(16, size=(2, 768), dtype=np.uint8)
    packed = np.asarray(pack(jnp.asarray(codes)))
    assert packed.shape == (2, 3, 128)
    for lead, i in np.ndindex(codes.shape):
        high, p, e = i % 256 // 128, i % 128 // 64, i % 64
        assert packed[lead, i // 256, 2 * e + p] >> (4 * high) & 15 == codes[lead, i]


def test_bits_of_a_quantized_matrix_are_those_of_its_registers():
    matrix = np.random.default_rng(10).normal(0.02, 1, RAGGED).astype(np.float32)
    quantized = encode(jnp.asarray(matrix), "q4_0")
    registers = pack(quantized.groups.codes)
    # 1152 bits to a super-group: a register of codes and eight scales.
    assert tile_layout.num_bits(quantized) == registers.size * 8 + quantized.groups.scales.size * 16
    assert quantized.groups.scales.size == 8 * registers.shape[0]
