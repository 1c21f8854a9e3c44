"""Weights in the order of the HMX matrix unit: tiles with interleaved rows, quantized there in 2 × 16 blocks and super-groups.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones": layout 3.1.2 and Fig. 4, tile groups 5.1.1,
super-groups 5.1.2 and Fig. 7.

A tile is 32 × 32. Inside it, two rows are interleaved: offset(r, c) = 64⌊r/2⌋ + 2c + (r mod 2). Tiles follow one another down
the columns of tiles. So 32 consecutive elements are 2 rows by 16 columns, and they form a quantization group. Eight groups
form a super-group: its 256 4-bit codes fill a vector register of 128 bytes.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Num, UInt8

from jaxspec.formats import group_quantization
from jaxspec.formats.code_tables import CodeTable
from jaxspec.formats.group_quantization import GroupQuantized, Scheme

__all__ = [
    "TileQuantized",
    "decode",
    "encode",
    "expected_bits",
    "from_tiles",
    "num_bits",
    "pack_super_groups",
    "padded_shape",
    "to_tiles",
]

TILE = 32  # rows and columns

REGISTER_BYTES = 128

SUPER_GROUP = 2 * REGISTER_BYTES  # elements, two to a byte


@struct.dataclass
class TileQuantized:
    """A matrix quantized in tile order.

    Attributes:
        groups: codes and scales of the padded matrix, flat in tile order.
        shape: rows and columns without padding.
    """

    groups: GroupQuantized
    shape: tuple[int, int] = struct.field(pytree_node=False)


def padded_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns, each rounded up to whole tiles."""
    rows, columns = shape
    return math.ceil(rows / TILE) * TILE, math.ceil(columns / TILE) * TILE


def to_tiles(matrix: Num[Array, "*b rows columns"]) -> Num[Array, "*b flat"]:
    """A matrix in tile order, padded with zeros to whole tiles."""
    *lead, inner_rows, inner_columns = matrix.shape
    rows, columns = padded_shape((inner_rows, inner_columns))
    padded = jnp.pad(matrix, [(0, 0)] * len(lead) + [(0, rows - inner_rows), (0, columns - inner_columns)])
    blocks = padded.reshape(*lead, rows // TILE, TILE // 2, 2, columns // TILE, TILE)
    tile_row, pair, row_in_pair, tile_column, column = range(-5, 0)
    return _permuted(blocks, (tile_column, tile_row, pair, column, row_in_pair)).reshape(*lead, rows * columns)


def from_tiles(flat: Num[Array, "*b flat"], *, shape: tuple[int, int]) -> Num[Array, "*b rows columns"]:
    """Inverse of `to_tiles`; the padding is dropped.

    Raises:
        ValueError: a number of elements that a matrix of this shape does not have.
    """
    rows, columns = padded_shape(shape)
    if flat.shape[-1] != rows * columns:
        raise ValueError(
            f"{flat.shape[-1]} elements; a {shape[0]} by {shape[1]} matrix has {rows * columns} with padding"
        )
    lead = flat.shape[:-1]
    blocks = flat.reshape(*lead, columns // TILE, rows // TILE, TILE // 2, TILE, 2)
    tile_column, tile_row, pair, column, row_in_pair = range(-5, 0)
    matrix = _permuted(blocks, (tile_row, pair, row_in_pair, tile_column, column)).reshape(*lead, rows, columns)
    return matrix[..., : shape[0], : shape[1]]


def _permuted(blocks: Array, axes: tuple[int, ...]) -> Array:
    """The last five axes in another order."""
    lead = blocks.ndim - 5
    return jnp.transpose(blocks, (*range(lead), *(blocks.ndim + axis for axis in axes)))


def encode(
    matrix: Float[Array, "*b rows columns"], scheme: Scheme | CodeTable = "q4_0", *, group_size: int = TILE
) -> TileQuantized:
    """Permute to tile order, then quantize groups of consecutive elements; see `group_quantization.encode`.

    Raises:
        ValueError: as there, or a group size that does not divide the 1024 elements of a tile.
    """
    if group_size < 1 or TILE**2 % group_size:
        raise ValueError(f"groups of {group_size}; allowed are divisors of {TILE**2}, so that no group spans two tiles")
    rows, columns = matrix.shape[-2:]
    return TileQuantized(group_quantization.encode(to_tiles(matrix), scheme, group_size=group_size), (rows, columns))


def decode(quantized: TileQuantized) -> Float[Array, "*b rows columns"]:
    """The matrix in float32, in its own order."""
    return from_tiles(group_quantization.decode(quantized.groups), shape=quantized.shape)


def num_bits(quantized: TileQuantized) -> int:
    """Bits of codes and scales, padding included."""
    return group_quantization.num_bits(quantized.groups)


def expected_bits(
    shape: tuple[int, int], code_bits: Float[Array, "*#b"] | float, *, group_size: Float[Array, "*#b"] | float = TILE
) -> Float[Array, "*b"] | float:
    """Bits of a matrix at a fractional code width, padding included: linear in the width, smooth in the group size.

    The padded size is a step function of the shape, which is static: no gradient is given by it.
    """
    values = jnp.asarray(math.prod(padded_shape(shape)), jnp.result_type(code_bits, 1.0))
    return group_quantization.expected_bits(values, code_bits, group_size=group_size)


def pack_super_groups(codes: UInt8[Array, "*b n"]) -> UInt8[Array, "*b super 128"]:
    """4-bit codes, 256 to a register; scales stay apart, in order.

    Byte 2e + p holds element 64p + e in its low and element 128 + 64p + e in its high four bits (e < 64, p < 2): the order in
    which two lookups, one on each half of the bytes, give the elements back in order.

    Args:
        codes: 0 to 15; n a multiple of 256, which whole tiles always give.
    Raises:
        ValueError: n no multiple of 256.
    Departs: Fig. 7 does not print the order inside the register; this is the one that needs no shuffle after the lookup. The
        paper has no separate arrays of codes and of scales, because of its prefetching: a super-group's scales lie beside its
        codes. The bits are as many.
    """
    if codes.shape[-1] % SUPER_GROUP:
        raise ValueError(f"{codes.shape[-1]} codes; super-groups have {SUPER_GROUP}: pad to a multiple of it")
    lanes = codes.reshape(*codes.shape[:-1], codes.shape[-1] // SUPER_GROUP, 2, 2, REGISTER_BYTES // 2)
    half = jnp.swapaxes(lanes, -1, -2)  # super, nibble, e, p
    packed = half[..., 0, :, :] | (half[..., 1, :, :] << 4)
    return packed.reshape(*packed.shape[:-2], REGISTER_BYTES)
