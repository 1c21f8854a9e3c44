"""Many prompts through one compiled shape: in chunks of one size, the last one padded with copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, Num

from jaxspec.models.mesh import on_host, rows_that_split
from jaxspec.speculate.sampling import Decoding

__all__ = [
    "CHUNK",
    "Chunk",
    "Prompts",
    "chunk_size",
    "ends_of",
    "flush_right",
    "gather",
    "generated_tokens",
    "num_chunks",
    "padded",
    "prompt_chunks",
]

# Texts of unequal length in one array: each begins at place 0, zeros follow its end; on the host.


def padded(texts: Sequence[Int[np.ndarray, " _"]], *, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Texts in one array, and their lengths.

    Args:
        least: places of the array at least.
    Returns:
        int32 "text place", and int32 " text".
    """
    lengths = np.array([len(text) for text in texts], np.int32)
    rows = np.zeros((len(texts), max(least, int(lengths.max()))), np.int32)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return rows, lengths


def flush_right(
    texts: Int[np.ndarray, "text place"], lengths: Int[np.ndarray, " text"]
) -> tuple[Int[np.ndarray, "text place"], Int[np.ndarray, " text"]]:
    """Texts moved so that their ends, in place of their beginnings, are in one column; and the number of zeros before each."""
    before = texts.shape[1] - lengths
    place = np.arange(texts.shape[1])[None, :] - before[:, None]
    moved = np.take_along_axis(texts, np.maximum(place, 0), axis=1)
    return np.where(place >= 0, moved, 0).astype(np.int32), before.astype(np.int32)


def generated_tokens(
    tokens: Num[np.ndarray, "text place"],
    lengths: Int[np.ndarray, " text"],
    generated: Int[np.ndarray, " text"],
    count: int,
) -> Num[np.ndarray, "text count"]:
    """The first `count` tokens after each prompt, or what else there is one of for each token; −1 behind the last generated.

    Args:
        tokens: prompts and what follows them. lengths: of the prompts.
    """
    place = np.arange(count)[None, :]
    taken = np.take_along_axis(tokens, np.minimum(lengths[:, None] + place, tokens.shape[1] - 1), axis=1)
    return np.where(place < generated[:, None], taken, -1)


def ends_of(generated: Int[np.ndarray, "text token"], stop: Sequence[int]) -> Int[np.ndarray, " text"]:
    """Tokens of each text up to its first stop token, that one included; one more than there is room for where it has none."""
    hit = np.isin(generated, np.asarray(stop, np.int32))
    return np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, generated.shape[1] + 1).astype(np.int32)


#: Most prompts decoded together.
CHUNK = 24


class Prompts(NamedTuple):
    """What is decoded, how far and how; one or more prompts, all of which share one array as wide as the longest.

    Attributes:
        tokens: from place 0 on; what follows the end of a prompt is not read.
        num_tokens: to decode of each, at least 1.
        seed: of all draws.
        lengths: of the prompts, 1 to their places; None: they have one length.
        stop: tokens that end a text; the first one generated is a text's last token.
    """

    tokens: np.ndarray
    num_tokens: int
    decoding: Decoding
    seed: int
    lengths: np.ndarray | None = None
    stop: Sequence[int] = ()

    @property
    def known_lengths(self) -> np.ndarray:
        """Of each prompt."""
        count, places = self.tokens.shape
        return np.full(count, places, np.int32) if self.lengths is None else np.asarray(self.lengths, np.int32)


class Chunk(NamedTuple):
    """Prompts decoded together.

    Attributes:
        ids: which of all prompts they are; the last ones may be copies.
        real: how many are no copies.
    """

    prompts: Int[Array, "chunk prompt"]
    ids: Int[Array, " chunk"]
    real: int

    def of(self, rows: np.ndarray) -> Array:
        """Rows of these prompts, out of an array with one row for each of all."""
        return jnp.asarray(rows[np.asarray(self.ids)])


def chunk_size(prompts: int) -> int:
    """Prompts of each chunk: evenly divided, then rounded up to a power of two, so that few shapes are compiled.

    What is decoded beyond the prompts is less than as many again.
    """
    even = -(-prompts // num_chunks(prompts))
    return min(CHUNK, 1 << (even - 1).bit_length())


def num_chunks(prompts: int) -> int:
    """Chunks of so many prompts."""
    return -(-prompts // CHUNK)


def prompt_chunks(prompts: np.ndarray, mesh: Mesh | None = None, *, sharing: int = 1) -> list[Chunk]:
    """All prompts, in chunks of one size.

    Args:
        mesh: of the devices that prompts are split over: what its data axis does not divide would be whole on each, so that
            chunks of the same prompts are filled up with more copies.
        sharing: consecutive prompts that share a pool of experts: a copy would have a part in a group that a chunk ends within,
            so that such chunks are not filled up.
    """
    chunks, size = [], chunk_size(len(prompts))
    places = size if size % sharing else rows_that_split(mesh, size)
    for start in range(0, len(prompts), size):
        part = prompts[start : start + size]
        index = np.arange(places) % len(part)
        chunks.append(Chunk(jnp.asarray(part[index]), jnp.asarray(start + index), len(part)))
    return chunks


def gather(parts: list[tuple[Any, int]]) -> dict[str, np.ndarray]:
    """Fields of the chunks' results (with `_asdict`) over all real prompts, on the host."""
    kept = [
        jax.tree.map(lambda x, count=count: np.asarray(x)[:count], on_host(result._asdict())) for result, count in parts
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *kept)
