"""Lossless coding of bfloat16 weights, ours beside constriction, zipnn and pcodec, on one core in one run.

    python -m experiments.benchmarks.lossless [--millions 64]      prints JSON; the case `lossless` runs it so

Weights are Gaussian rows whose scales vary (see `experiments.papers.huffllm.compression`), or pure Gaussian ones. Decoding
goes from the stored streams to all bfloat16 patterns, in fresh memory. constriction decodes the exponents alone, and only
that is timed: what putting them together would cost it is left out. Rates are megabytes of bfloat16 per second; every figure
is the median of rounds in which all take turns, so that a busy machine slows all alike. Packing and unpacking of files is timed
by the processor's clock: what it waits for the disk does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
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

    from jaxspec.formats.huffman_streams import code_of_symbols, decode_bfloat16, encode, entries, num_bits, num_steps

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
            decoded = decode_bfloat16(streams, table, beside_exponents)
            assert bool(decoded.complete)
            whole[place : place + size] = np.asarray(decoded.pairs).reshape(-1).view("<u2")[:size]
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


ROUNDS = 5


def file_rates(patterns: np.ndarray) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """`pack` and `unpack` end to end, file to file, checksums, SHA-256 and proof included; gzip of the same file beside."""
    import ml_dtypes
    from safetensors.numpy import save_file

    from jaxspec.formats.container import Container, open_checkpoint, pack, unpack
    from jaxspec.studies.pack.draft_split import MatrixSplit

    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "weights.safetensors"
        matrices = patterns.view(ml_dtypes.bfloat16).reshape(4, -1, 4096)
        save_file({f"layer.{i}.weight": np.ascontiguousarray(matrix) for i, matrix in enumerate(matrices)}, source)
        peers = _gzip_rates(source, patterns.size)
        split = MatrixSplit(0.4, 4, {}, {})
        for name in ("huffman", "huffllm", "cassandra1"):
            packed = Path(folder) / f"{name}.jspk"
            times: dict[str, float] = {}
            for _ in range(2):  # the first compiles
                started = time.process_time()
                pack(open_checkpoint(source), packed, name, split=split)
                times["pack"] = time.process_time() - started
                started = time.process_time()
                with Container(packed) as container:
                    unpack(container, Path(folder) / "out.safetensors", force=True)
                times["unpack"] = time.process_time() - started
            bits = 8 * packed.stat().st_size / patterns.size
            for what, seconds in times.items():
                pairs.append((rate_of(f"ours: {what} {name}, file to file", patterns.size, seconds, bits), peers[what]))
    return pairs


def _gzip_rates(source: Path, elements: int) -> dict[str, dict[str, Any]]:
    """The fastest level of what every machine has."""
    import gzip
    import shutil

    squeezed, again = source.with_suffix(".gz"), source.with_suffix(".again")
    started = time.process_time()
    with source.open("rb") as reading, gzip.open(squeezed, "wb", compresslevel=1) as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
    packed = time.process_time()
    with gzip.open(squeezed) as reading, again.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
    seconds = {"pack": packed - started, "unpack": time.process_time() - packed}
    bits = 8 * squeezed.stat().st_size / elements
    return {what: rate_of(f"gzip -1: {what}, file to file", elements, s, bits) for what, s in seconds.items()}


def exact_huffman_bits(patterns: np.ndarray) -> float:
    """Bits per weight with an optimal Huffman code of the exponents, no limit to its length, nothing else stored."""
    from jaxspec.formats.huffman import code_lengths, mean_length

    counts = np.bincount((patterns >> 7) & 0xFF, minlength=256)
    return 8 + mean_length(counts, code_lengths(counts, max_length=32))


def compare(millions: int) -> dict[str, Any]:
    """All contenders on the same weights, taking turns."""
    varied = draw_weights(millions * 1_000_000 // CHUNK * CHUNK or CHUNK, row_spread=0.3)
    contenders: dict[Any, Contender] = {}
    absent = []
    large = (ours_huffman, constriction_ans, zipnn_bytes, pcodec_numbers)
    small = (ours_unary, numpy_unary, constriction_huffman)
    for maker in (*large, *small):
        try:
            contenders[maker] = maker(varied if maker in large else varied[:CHUNK])
        except ImportError as error:
            absent.append(f"{maker.__name__}: not installed ({error.name})")
    for _ in range(ROUNDS):
        for contender in contenders.values():
            contender.turn()
    peers = dict.fromkeys((*large[1:], constriction_huffman), ours_huffman) | {numpy_unary: ours_unary}
    pairs = [(contenders[ours].result, contenders[peer].result) for peer, ours in peers.items() if peer in contenders]
    gaussian = draw_weights(varied.size, row_spread=0.0, seed=1)
    return {
        "elements": varied.size,
        "pairs": pairs + file_rates(varied[: 4 * CHUNK]),
        "absent": absent,
        "exact_huffman_bits": {"varied": exact_huffman_bits(varied), "gaussian": exact_huffman_bits(gaussian)},
        "ours_bits_gaussian": ours_huffman(gaussian).bits_per_weight,
    }


def main() -> None:
    """Pin this process to one core before JAX counts them, then compare."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.lossless", description=__doc__)
    parser.add_argument("--millions", type=int, default=64)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps(compare(args.millions)))


if __name__ == "__main__":
    main()
