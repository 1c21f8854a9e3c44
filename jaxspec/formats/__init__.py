"""Number formats, bit for bit, a module each: `formats.huffman.encode(...)`, `formats.mx.decode(...)`.

Patterns: `patterns` (with truncation), `fields` (with entropies), `bit_packing`. Sparse values:
`bitmap`. Exponents: `unary`, `unary_decode`, `huffman`, `huffman_streams`, `huffman_cam`, `huffman_columns`. Blocks with
shared exponents: `mx`, `mx_truncated`. Integers: `bit_slices`, `group_quantization`, `code_tables`, `tile_layout`;
`exp_table`. Memory: `superblock`. Files: `container`.
"""

from jaxspec.formats import (
    bit_packing,
    bit_slices,
    bitmap,
    code_tables,
    container,
    exp_table,
    fields,
    group_quantization,
    huffman,
    huffman_cam,
    huffman_columns,
    huffman_streams,
    mx,
    mx_truncated,
    patterns,
    superblock,
    tile_layout,
    unary,
    unary_decode,
)

__all__ = [
    "bit_packing",
    "bit_slices",
    "bitmap",
    "code_tables",
    "container",
    "exp_table",
    "fields",
    "group_quantization",
    "huffman",
    "huffman_cam",
    "huffman_columns",
    "huffman_streams",
    "mx",
    "mx_truncated",
    "patterns",
    "superblock",
    "tile_layout",
    "unary",
    "unary_decode",
]
