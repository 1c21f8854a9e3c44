"""Where text comes from, and how it is cut into windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxspec.errors import InputError
from jaxspec.models.chat_template import ChatTemplate
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.text.documents import Document, Encoder
from jaxspec.text.user_text import STDLIB, check_lengths, read_halves

SNAPSHOT = Path(__file__).parent

#: Stands before each file of the snapshot, as in the embedded network's training.
SEPARATOR = b"\x00"


class TextSplit(NamedTuple):
    """Token streams that never share a file (snapshot), a passage (user's file) or a document (JSON lines).

    Attributes:
        calibration: int32, for activation norms and tuning.
        held_out: int32, for prompts and every reported number.
        source: what the report calls it.
        calibration_starts, held_out_starts: where the documents of a stream begin, 0 first: a window lies within one.
        notes: what the user should know of it.
    """

    calibration: np.ndarray
    held_out: np.ndarray
    source: str
    calibration_starts: tuple[int, ...] = (0,)
    held_out_starts: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()


class _Stream(NamedTuple):
    """Documents one behind the other, and where each begins."""

    tokens: np.ndarray
    starts: tuple[int, ...]
    joined: bool = False


def _snapshot(folder: str) -> bytes:
    return b"".join(SEPARATOR + path.read_bytes() for path in sorted((SNAPSHOT / folder).glob("*.txt")))


def load_text(
    source: str, tokenizer: Tokenizer, *, needed: tuple[int, int] = (0, 0), chat: ChatTemplate | None = None
) -> TextSplit:
    """The snapshot ("stdlib"), or a file whose first half calibrates and whose second half is held out.

    A window lies within one document. Where no document of a half holds one, its documents are joined, with a line end between
    them.

    Args:
        needed: tokens of one window of calibration text and of held-out text; a user's file must hold them.
        chat: writes the conversations of a JSON lines file.
    Raises:
        InputError: the file is missing, unreadable, not UTF-8 text or too short, or a line of it is no document.
    """
    if source == STDLIB:
        parts = tokenizer.encode(_snapshot("calibration")), tokenizer.encode(_snapshot("held_out"))
        return TextSplit(*parts, "standard-library snapshot (calibration modules and held-out modules apart)")
    halves, encoder = read_halves(source), Encoder(tokenizer, chat)
    calibration, held_out = (_stream(half, encoder, window) for half, window in zip(halves, needed))
    check_lengths(source, halves.bytes, (len(calibration.tokens), len(held_out.tokens)), needed)
    kinds = {"calibration": calibration, "held-out": held_out}
    notes = tuple(
        f"no {kind} document of {Path(source).name} holds a window of {window} tokens; they are joined, with line ends between"
        for (kind, stream), window in zip(kinds.items(), needed)
        if stream.joined
    )
    name = f"{Path(source).name} (first half calibrates, second half held out)"
    return TextSplit(calibration.tokens, held_out.tokens, name, calibration.starts, held_out.starts, notes)


def _stream(documents: Sequence[Document], encoder: Encoder, window: int) -> _Stream:
    """Documents as one stream; joined to one document where none holds a window."""
    encoded = [encoder.encode(document, as_prompt=False) for document in documents]
    if len(encoded) > 1 and max(map(len, encoded)) < window:
        line_end = encoder.tokenizer.encode("\n", special_tokens=False)
        return _Stream(np.concatenate([part for tokens in encoded for part in (tokens, line_end)][:-1]), (0,), True)
    starts = np.cumsum([0, *(len(tokens) for tokens in encoded[:-1])])
    return _Stream(np.concatenate(encoded), tuple(starts.tolist()))


def prompt_starts(num_tokens: int, count: int, length: int, seed: int) -> np.ndarray:
    """Starts of `count` windows of `length` tokens, evenly spread with a jitter drawn from the seed.

    Raises:
        InputError: the text is shorter than one window.
    """
    room = num_tokens - length
    if room < 0:
        raise InputError(
            f"the text has {num_tokens} tokens, one window needs {length}; give a longer --text or shorter prompts"
        )
    cell = room / count
    jitter = np.random.default_rng([seed, count, length]).random(count)
    return np.minimum(((np.arange(count) + jitter) * cell).astype(np.int64), room)


def windows(
    tokens: np.ndarray, count: int, length: int, seed: int, *, document_starts: Sequence[int] = (0,)
) -> Int[np.ndarray, "count length"]:
    """`count` windows of `length` tokens spread over the whole stream; they overlap where the stream is short.

    Args:
        document_starts: where documents begin, 0 first; a window lies within one of them.
    Returns:
        int32 "count length".
    Raises:
        InputError: no document holds a window.
    """
    cut = _Cut.of(tokens, length, document_starts)
    if not cut.num_places:
        return _taken(tokens, prompt_starts(cut.longest, count, length, seed), length)  # says what is too short
    return cut.windows(prompt_starts(cut.num_places - 1 + length, count, length, seed))


def windows_between(
    tokens: np.ndarray, count: int, length: int, seed: int, *, document_starts: Sequence[int] = (0,)
) -> Int[np.ndarray, "found length"]:
    """Windows midway between those of `windows` with the same arguments, none of which shares a token with them.

    Returns:
        int32 "found length": `count` less one, fewer where the stream is short, perhaps none.
    """
    cut = _Cut.of(tokens, length, document_starts)
    if not cut.num_places:
        return np.zeros((0, length), np.int32)
    others = prompt_starts(cut.num_places - 1 + length, count, length, seed)
    # Places of one document follow each other as its tokens do; windows of two documents never share a token.
    apart = np.diff(others) >= 2 * length
    return cut.windows((others[:-1] + np.diff(others) // 2)[apart])


class _Cut(NamedTuple):
    """Where windows of one length may lie in a stream: places at which they may begin, counted over all documents.

    Attributes:
        begin, sizes: first token of each document, and its tokens.
    """

    tokens: np.ndarray
    length: int
    begin: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, length: int, document_starts: Sequence[int]) -> _Cut:
        """Args: document_starts: as for `windows`."""
        begin = np.asarray(document_starts)
        return cls(tokens, length, begin, np.diff(np.append(begin, len(tokens))))

    @property
    def places(self) -> np.ndarray:
        """At which a window may begin, of each document."""
        return np.maximum(self.sizes - self.length + 1, 0)

    @property
    def num_places(self) -> int:
        """Of all documents."""
        return int(self.places.sum())

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return int(self.sizes.max())

    def windows(self, places: np.ndarray) -> np.ndarray:
        """Those that begin at some places."""
        upto = np.cumsum(self.places)
        document = np.searchsorted(upto, places, side="right")
        return _taken(self.tokens, self.begin[document] + places - (upto - self.places)[document], self.length)


def _taken(tokens: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    return tokens[starts[:, None] + np.arange(length)].astype(np.int32)
