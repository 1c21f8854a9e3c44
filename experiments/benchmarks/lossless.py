"""Lossless coding of bfloat16 weights, ours beside constriction, zipnn and pcodec, on one core in one run.

    python -m experiments.benchmarks.lossless [--millions 64]      prints JSON; the case `lossless` runs it so

Weights are Gaussian rows whose scales vary (see `experiments.papers.huffllm.weights_model`), or pure Gaussian ones. Decoding
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
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.lossless_codecs import (
    CHUNK,
    Contender,
    constriction_ans,
    constriction_huffman,
    draw_weights,
    numpy_unary,
    ours_huffman,
    ours_unary,
    pcodec_numbers,
    rate_of,
    zipnn_bytes,
)

ROUNDS = 5


def file_rates(patterns: np.ndarray) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """`pack` and `unpack` end to end, file to file, checksums, SHA-256 and proof included; gzip of the same file beside."""
    import ml_dtypes
    from safetensors.numpy import save_file

    from jaxspec.formats.container import Container, open_checkpoint, pack, unpack
    from jaxspec.studies.pack.division import MatrixDivision

    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "weights.safetensors"
        matrices = patterns.view(ml_dtypes.bfloat16).reshape(4, -1, 4096)
        save_file({f"layer.{i}.weight": np.ascontiguousarray(matrix) for i, matrix in enumerate(matrices)}, source)
        peers = _gzip_rates(source, patterns.size)
        division = MatrixDivision(0.4, 4, {}, {})
        for name in ("huffman", "huffllm", "cassandra1"):
            packed = Path(folder) / f"{name}.jspk"
            times: dict[str, float] = {}
            for _ in range(2):  # the first compiles
                started = time.process_time()
                pack(open_checkpoint(source), packed, name, division=division)
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
