"""Ways to decode bfloat16 weights without loss, each proved on its input: ours, NumPy, constriction, zipnn, pcodec."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

#: Elements that are decoded at once, as containers do.
CHUNK = 1 << 22


def draw_weights(count: int, *, row_spread: float, seed: int = 0, columns: int = 4096) -> np.ndarray:
    """`count` bfloat16 patterns of Gaussian rows."""
    import ml_dtypes

    rng = np.random.default_rng([seed, count])
    parts = []
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        rows = -(-size // columns)
        scale = 0.01 * np.exp(row_spread * rng.standard_normal((rows, 1), np.float32))
        values = (scale * rng.standard_normal((rows, columns), np.float32)).reshape(-1)[:size]
        parts.append(values.astype(ml_dtypes.bfloat16).view(np.uint16))
    return np.concatenate(parts)


class Contender:
    """One way to decode: what it decodes, how many bits that takes, and how long the rounds took."""

    def __init__(self, name: str, decode: Callable[[], Any], bits_per_weight: float, elements: int):
        """Args: elements: weights that one call decodes."""
        self.name, self.decode, self.bits_per_weight, self.elements = name, decode, bits_per_weight, elements
        self.seconds: list[float] = []

    def turn(self) -> None:
        """One timed call."""
        started = time.perf_counter()
        self.decode()
        self.seconds.append(time.perf_counter() - started)

    @property
    def result(self) -> dict[str, Any]:
        """Median megabytes of bfloat16 per second, and bits per weight."""
        return rate_of(self.name, self.elements, float(np.median(self.seconds)), self.bits_per_weight)


def rate_of(name: str, elements: int, seconds: float, bits_per_weight: float) -> dict[str, Any]:
    """Megabytes of bfloat16 per second, and bits per weight."""
    return {"name": name, "rate": 2 * elements / seconds / 1e6, "bits_per_weight": bits_per_weight}


def ours_huffman(patterns: np.ndarray) -> Contender:
    """Exponents from Huffman streams (at most 12 bits a codeword), put together with sign and mantissa."""
    import jax.numpy as jnp

    from jaxspec.formats.huffman_streams import (
        code_of_symbols,
        decode_bfloat16,
        encode,
        entries,
        num_bits,
        num_steps,
    )

    exponents = ((patterns >> 7) & 0xFF).astype(np.uint8)
    beside = ((patterns >> 8) & 0x80 | patterns & 0x7F).astype(np.uint8)
    code = code_of_symbols(np.bincount(exponents, minlength=256))
    table = entries(code, shift=7)
    chunks, bits = [], 0
    for first in range(0, patterns.size, CHUNK):
        streams = encode(jnp.asarray(exponents[first : first + CHUNK]), code)
        bits += num_bits(streams)
        words = int(np.asarray(streams.word_counts).sum())
        room = -(-(words + 1) // 65536) * 65536
        streams = streams.replace(words=jnp.asarray(np.asarray(streams.words)[:room]))  # pyright: ignore[reportAttributeAccessIssue]
        lanes = streams.word_counts.shape[0]
        part = beside[first : first + CHUNK]
        steps = num_steps(part.size, lanes)
        padded = np.zeros(steps * lanes * 2, np.uint8)
        padded[: part.size] = part
        chunks.append((streams, jnp.asarray(padded.view("<u2").reshape(steps, lanes)), part.size))

    def decode() -> np.ndarray:
        whole, place = np.empty(patterns.size, np.uint16), 0
        for streams, beside_exponents, size in chunks:
            found = decode_bfloat16(streams, table, beside_exponents)
            assert bool(found.complete)
            whole[place : place + size] = np.asarray(found.pairs).reshape(-1).view("<u2")[:size]
            place += size
        return whole

    assert np.array_equal(decode(), patterns)
    return Contender("ours: Huffman exponents and reassembly", decode, 8 + bits / patterns.size, patterns.size)


def ours_unary(patterns: np.ndarray) -> Contender:
    """Exponents from one unary stream, put together with sign and mantissa in NumPy."""
    import jax
    import jax.numpy as jnp

    from jaxspec.formats import unary
    from jaxspec.formats.unary_decode import decode_lanes

    exponents = ((patterns >> 7) & 0xFF).astype(np.uint8)
    codebook = unary.build_codebook(jnp.asarray(np.bincount(exponents, minlength=256)))
    size = -(-int(unary.encoded_bits(jnp.asarray(exponents), codebook)) // 8)
    stream = jax.jit(unary.encode, static_argnames="capacity_bytes")(
        jnp.asarray(exponents), codebook, capacity_bytes=size
    )
    read = jax.jit(decode_lanes, static_argnames="num_symbols")

    def decode() -> np.ndarray:
        symbols = np.asarray(read(stream, codebook, num_symbols=patterns.size).symbols)
        return (patterns & 0x807F) | (symbols.astype(np.uint16) << 7)

    assert np.array_equal(decode(), patterns)
    return Contender("ours: unary exponents and reassembly", decode, 8 + 8 * size / patterns.size, patterns.size)


def numpy_unary(patterns: np.ndarray) -> Contender:
    """The same stream by NumPy: places of the ones, their differences."""
    exponents = (patterns >> 7) & 0xFF
    order = np.argsort(-np.bincount(exponents, minlength=256), kind="stable").astype(np.uint8)
    ends = np.cumsum(np.argsort(order)[exponents] + 1)
    ones = np.zeros(int(ends[-1]), bool)
    ones[ends - 1] = True
    data = np.packbits(ones)

    def decode() -> np.ndarray:
        ranks = np.diff(np.flatnonzero(np.unpackbits(data)), prepend=-1) - 1
        return (patterns & 0x807F) | (order[ranks].astype(np.uint16) << 7)

    assert np.array_equal(decode(), patterns)
    return Contender("NumPy: unary exponents and reassembly", decode, 8 + 8 * data.size / patterns.size, patterns.size)


def constriction_ans(patterns: np.ndarray) -> Contender:
    """Range asymmetric numeral systems of the package constriction, exponents alone."""
    import constriction

    exponents = ((patterns >> 7) & 0xFF).astype(np.int32)
    shares = np.bincount(exponents, minlength=256) / exponents.size
    model = constriction.stream.model.Categorical(shares, perfect=False)  # pyright: ignore[reportAttributeAccessIssue]
    coder = constriction.stream.stack.AnsCoder()  # pyright: ignore[reportAttributeAccessIssue]
    coder.encode_reverse(exponents, model)
    words = coder.get_compressed()

    def decode() -> np.ndarray:
        return constriction.stream.stack.AnsCoder(words).decode(model, exponents.size)  # pyright: ignore[reportAttributeAccessIssue]

    assert np.array_equal(decode(), exponents)
    return Contender("constriction: ANS, exponents alone", decode, 8 + 32 * words.size / patterns.size, patterns.size)


def constriction_huffman(patterns: np.ndarray) -> Contender:
    """Huffman decoding of the package constriction: its interface takes a symbol a call, so a sample stands for all."""
    import constriction

    exponents = ((patterns[: 1 << 18] >> 7) & 0xFF).astype(np.int32)
    shares = np.bincount(exponents, minlength=256) / exponents.size
    writer = constriction.symbol.QueueEncoder()  # pyright: ignore[reportAttributeAccessIssue]
    tree = constriction.symbol.huffman.EncoderHuffmanTree(shares)  # pyright: ignore[reportAttributeAccessIssue]
    for symbol in exponents.tolist():
        writer.encode_symbol(symbol, tree)
    words, bits = writer.get_compressed()
    reading = constriction.symbol.huffman.DecoderHuffmanTree(shares)  # pyright: ignore[reportAttributeAccessIssue]

    def decode() -> list[int]:
        reader = constriction.symbol.QueueDecoder(words)  # pyright: ignore[reportAttributeAccessIssue]
        return [reader.decode_symbol(reading) for _ in range(exponents.size)]

    assert decode() == exponents.tolist()
    name = "constriction: Huffman, exponents alone, a call per symbol"
    return Contender(name, decode, 8 + bits / exponents.size, exponents.size)


def zipnn_bytes(patterns: np.ndarray) -> Contender:
    """The package zipnn (C), one thread, from bytes to bytes."""
    from zipnn import ZipNN  # pyright: ignore[reportMissingImports] - optional

    packer = ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
    stored = bytes(packer.compress(patterns.tobytes()))

    def decode() -> Any:
        return packer.decompress(stored)

    assert bytes(decode()) == patterns.tobytes()
    return Contender("zipnn: C, one thread", decode, 8 * len(stored) / patterns.size, patterns.size)


def pcodec_numbers(patterns: np.ndarray) -> Contender:
    """The package pcodec (Rust), which takes the patterns for 16-bit integers."""
    from pcodec import ChunkConfig, standalone  # pyright: ignore - optional, and without types

    stored = standalone.simple_compress(patterns, ChunkConfig())

    def decode() -> Any:
        return standalone.simple_decompress(stored)

    assert np.array_equal(np.asarray(decode()), patterns)
    return Contender("pcodec: Rust, patterns as integers", decode, 8 * len(stored) / patterns.size, patterns.size)
