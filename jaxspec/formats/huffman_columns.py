"""A column of an array that decodes Huffman codes in a cycle: banks of its weight buffer, one for each coded group of bits.

A column has a decoder of `jaxspec.formats.huffman_cam`, and a bank, for each coded group; sign and raw groups are
passed through.

Source: Huff-LLM, 3.1 (splits), 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt8, UInt16

from jaxspec.formats import fields, huffman
from jaxspec.formats.huffman import MAX_CODE_LENGTH, HuffmanCode
from jaxspec.formats.huffman_cam import BankStream, Cam, decode, encode_bank
from jaxspec.formats.patterns import BFLOAT16, FLOAT16, NumberFormat

__all__ = [
    "SPLITS",
    "Column",
    "ColumnRun",
    "FieldSplit",
    "column_codes",
    "decode_column",
    "encode_column",
    "expected_bits",
    "num_bits",
]


class FieldSplit(NamedTuple):
    """Groups of bits, most significant first, and which of them are Huffman-coded; the others are stored as they are."""

    widths: tuple[int, ...]
    coded: tuple[bool, ...]


#: Sign raw; float16's exponent and mantissa halves coded; bfloat16's exponent nibbles coded, its mantissa raw.
SPLITS = {
    FLOAT16.name: FieldSplit((1, 5, 5, 5), (False, True, True, True)),
    BFLOAT16.name: FieldSplit((1, 4, 4, 7), (False, True, True, False)),
}


class Column(NamedTuple):
    """The weights of one column: raw groups as they are, each coded group in a bank; all banks have the same capacity."""

    raw: tuple[UInt8[Array, " weight"], ...]
    banks: tuple[BankStream, ...]


class ColumnRun(NamedTuple):
    """Weights of a column, one per cycle.

    Attributes:
        bits: the stored patterns.
        valid: every stream was complete, every cycle matched, and each bank was used up exactly. A corrupted stream whose
            wrong codewords have as many bits in all as the right ones is not noticed.
        reads: accesses of each bank.
    """

    bits: UInt16[Array, " weight"]
    valid: Bool[Array, ""]
    reads: Int32[Array, " bank"]


def _split_of(number_format: NumberFormat) -> FieldSplit:
    if number_format.name not in SPLITS:
        raise NotImplementedError(
            f"no split into coded fields for {number_format.name}; there is one for {list(SPLITS)}"
        )
    return SPLITS[number_format.name]


def column_codes(
    bits: UInt16[Array, "*b"], *, number_format: NumberFormat = FLOAT16, max_length: int = MAX_CODE_LENGTH
) -> tuple[HuffmanCode, ...]:
    """The best code of each coded group of a matrix, most significant group first; made once, on the host.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: `max_length` too short for the patterns that occur.
    """
    split = _split_of(number_format)
    groups = zip(fields.split(jnp.asarray(bits), split.widths), split.widths, split.coded)
    counts = [
        np.bincount(np.asarray(group).reshape(-1), minlength=1 << width) for group, width, coded in groups if coded
    ]
    lengths = [huffman.code_lengths(count, max_length=max_length) for count in counts]
    return tuple(huffman.code_of_lengths(these, max_length=max_length) for these in lengths)


def encode_column(
    bits: UInt16[Array, " weight"],
    codes: Sequence[HuffmanCode],
    *,
    capacity_words: int,
    number_format: NumberFormat = FLOAT16,
) -> Column:
    """The weights of a column in equally large banks, one for each code.

    Args:
        capacity_words: static; words of each bank.
    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of codes than of coded groups, or a capacity that `encode_bank` refuses.
    """
    split = _split_of(number_format)
    _check_banks(codes, split)
    groups = list(zip(fields.split(bits, split.widths), split.coded))
    coded = [group for group, is_coded in groups if is_coded]
    banks = [encode_bank(group, code, capacity_words=capacity_words) for group, code in zip(coded, codes)]
    return Column(tuple(group for group, is_coded in groups if not is_coded), tuple(banks))


def decode_column(
    column: Column, cams: Sequence[Cam], *, number_format: NumberFormat = FLOAT16, register_bits: int = 64
) -> ColumnRun:
    """Run a column's decoders side by side and put the weights together again; the inverse of `encode_column`.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of memories than of coded groups, or another register than 32 or 64 bits.
    """
    split = _split_of(number_format)
    _check_banks(cams, split)
    num_weights = column.raw[0].shape[0]
    runs = [
        decode(cam, bank.words, num_symbols=num_weights, register_bits=register_bits)
        for cam, bank in zip(cams, column.banks)
    ]
    raw, coded = iter(column.raw), iter(run.symbols for run in runs)
    bits = fields.merge([next(coded if is_coded else raw) for is_coded in split.coded], split.widths)
    valid = [
        bank.complete & jnp.all(run.matched) & (run.num_bits == bank.num_bits) for run, bank in zip(runs, column.banks)
    ]
    return ColumnRun(bits, jnp.all(jnp.stack(valid)), jnp.stack([run.reads for run in runs]))


def num_bits(column: Column, *, number_format: NumberFormat = FLOAT16) -> int:
    """Bits of the raw groups and of all codewords, without a bank's unused room; exact on the host, also of many columns."""
    split = _split_of(number_format)
    raw_widths = [width for width, coded in zip(split.widths, split.coded) if not coded]
    raw = sum(group.size * width for group, width in zip(column.raw, raw_widths))
    return raw + sum(int(np.sum(np.asarray(bank.num_bits, np.int64))) for bank in column.banks)


def expected_bits(
    counts: Sequence[Float[Array, " symbol"]],
    *,
    number_format: NumberFormat = FLOAT16,
    max_length: int = MAX_CODE_LENGTH,
) -> Float[Array, ""]:
    """Mean bits per weight with the best codes for these (soft) counts of the coded groups.

    Differentiable with the kinks and jumps of `huffman.expected_bits`.

    Raises:
        NotImplementedError: a number format without a split.
        ValueError: another number of counts than of coded groups.
    """
    split = _split_of(number_format)
    _check_banks(counts, split)
    raw = sum(width for width, coded in zip(split.widths, split.coded) if not coded)
    return jnp.sum(jnp.stack([huffman.expected_bits(count, max_length=max_length) for count in counts])) + raw


def _check_banks(given: Sequence[object], split: FieldSplit) -> None:
    if len(given) != sum(split.coded):
        raise ValueError(f"{len(given)} codes came for the split {split.widths}, which codes {sum(split.coded)} groups")
