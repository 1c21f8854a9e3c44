"""Where text comes from, and how it is cut into windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxspec.errors import InputError
from jaxspec.models.chat_template import ChatTemplate
from jaxspec.models.tokenizer import Tokenizer, beginning
from jaxspec.text.documents import STDLIB, Document, Encoder, check_lengths, read_halves

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
        calibration_answers: where the last answers of conversations begin in the calibration text.
        beginning: tokens that the tokenizer puts before each text. The streams are without them, windows begin with them.
    """

    calibration: np.ndarray
    held_out: np.ndarray
    source: str
    calibration_starts: tuple[int, ...] = (0,)
    held_out_starts: tuple[int, ...] = (0,)
    notes: tuple[str, ...] = ()
    beginning: tuple[int, ...] = ()
    calibration_answers: tuple[int, ...] = ()

    def calibration_windows(
        self, count: int, length: int, seed: int, *, ahead: int | None = None
    ) -> Int[np.ndarray, "count length"]:
        """Windows of the calibration text: with an answer behind each one's first tokens, as a prompt is what a network
        answers. Where there are fewer answers than windows, the rest are `windows`, anywhere in the text.

        Args:
            ahead: tokens of a window ahead of the answer, some of which may be of the conversation before; None: anywhere.
        """
        places = np.zeros(0, np.int64) if ahead is None else self._ahead_of_answers(length, ahead)
        answered = self._at(self._chosen(places, count, seed), length)
        if len(answered) == count:
            return answered
        where = {"document_starts": self.calibration_starts, "beginning": self.beginning}
        return np.concatenate([answered, windows(self.calibration, count - len(answered), length, seed, **where)])

    def answers_note(self, count: int, length: int, ahead: int) -> tuple[str, ...]:
        """What to say of `calibration_windows` where some of them, but not all, begin an answer."""
        answers = len(self._ahead_of_answers(length, ahead))
        if not 0 < answers < count:
            return ()
        return (
            f"{answers} of {count} calibration windows begin an answer, as many as the text has; the rest lie anywhere in it, "
            f"where a network often repeats itself and accepts more: --calibration-prompts {answers} takes the answers alone",
        )

    def calibration_between(
        self, count: int, length: int, seed: int, *, ahead: int | None = None
    ) -> Int[np.ndarray, "found length"]:
        """Further windows of the calibration text, of answers or else `windows_between`; none shares a token with those of
        `calibration_windows` with the same arguments."""
        if ahead is not None and len(places := self._ahead_of_answers(length, ahead)):
            chosen = self._chosen(places, count, seed)
            apart = np.abs(places[:, None] - chosen).min(axis=1) >= length - len(self.beginning)
            return self._at(places[apart], length)
        where = {"document_starts": self.calibration_starts, "beginning": self.beginning}
        return windows_between(self.calibration, count, length, seed, **where)

    def _ahead_of_answers(self, length: int, ahead: int) -> Int[np.ndarray, " answer"]:
        """Where windows would begin that have answers behind their first tokens."""
        places = np.asarray(self.calibration_answers, np.int64) - ahead + len(self.beginning)
        return places[(places >= 0) & (places + length - len(self.beginning) <= len(self.calibration))]

    def _chosen(self, places: Int[np.ndarray, " answer"], count: int, seed: int) -> Int[np.ndarray, " chosen"]:
        count = min(count, len(places))
        return np.sort(np.random.default_rng([seed, count, len(places)]).choice(places, count, replace=False))

    def _at(self, places: Int[np.ndarray, " count"], length: int) -> Int[np.ndarray, "count length"]:
        return _begun_windows(self.calibration, places, length - len(self.beginning), self.beginning)

    def held_out_windows(self, count: int, length: int, seed: int) -> Int[np.ndarray, "count length"]:
        """`windows` of the held-out text."""
        where = {"document_starts": self.held_out_starts, "beginning": self.beginning}
        return windows(self.held_out, count, length, seed, **where)


class _Stream(NamedTuple):
    """Documents one behind the other, where each begins, and where the last answers of conversations do."""

    tokens: np.ndarray
    starts: tuple[int, ...]
    answers: tuple[int, ...]
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
    begin = beginning(tokenizer)
    if source == STDLIB:
        return TextSplit(
            calibration=without_beginning(tokenizer.encode(_snapshot("calibration")), begin),
            held_out=without_beginning(tokenizer.encode(_snapshot("held_out")), begin),
            source="standard-library snapshot (calibration modules and held-out modules apart)",
            beginning=tuple(begin.tolist()),
        )
    needed = max(needed[0] - len(begin), 0), max(needed[1] - len(begin), 0)
    halves, encoder = read_halves(source), Encoder(tokenizer, chat)
    calibration, held_out = (_stream(half, encoder, begin, window) for half, window in zip(halves, needed))
    check_lengths(source, halves.bytes, (len(calibration.tokens), len(held_out.tokens)), needed)
    kinds = {"calibration": calibration, "held-out": held_out}
    notes = tuple(
        f"no {kind} document of {Path(source).name} holds a window of {window} tokens; they are joined, with line ends between"
        for (kind, stream), window in zip(kinds.items(), needed)
        if stream.joined
    )
    name = f"{Path(source).name} (first half calibrates, second half held out)"
    starts = calibration.starts, held_out.starts
    return TextSplit(
        calibration.tokens, held_out.tokens, name, *starts, notes, tuple(begin.tolist()), calibration.answers
    )


def without_beginning(tokens: Int[np.ndarray, " token"], begin: Sequence[int] | np.ndarray) -> Int[np.ndarray, " rest"]:
    """Tokens of a text behind those that begin it, where it begins with these."""
    return tokens[len(begin) :] if np.array_equal(tokens[: len(begin)], begin) else tokens


def _stream(documents: Sequence[Document], encoder: Encoder, begin: np.ndarray, window: int) -> _Stream:
    """Documents as one stream, without what begins each; joined to one document where none holds a window."""
    encoded = [without_beginning(encoder.encode(document, as_prompt=False), begin) for document in documents]
    joined = len(encoded) > 1 and max(map(len, encoded)) < window
    between = encoder.tokenizer.encode("\n", special_tokens=False) if joined else np.zeros(0, np.int32)
    starts = np.cumsum([0, *(len(tokens) + len(between) for tokens in encoded[:-1])]).tolist()
    within = (_answer_in(*both, encoder, begin) for both in zip(documents, encoded, strict=True))
    answers = tuple(start + place for start, place in zip(starts, within, strict=True) if place is not None)
    stream = np.concatenate([part for tokens in encoded for part in (tokens, between)][:-1])
    return _Stream(stream, (0,) if joined else tuple(starts), answers, joined)


def _answer_in(
    document: Document, tokens: Int[np.ndarray, " token"], encoder: Encoder, begin: np.ndarray
) -> int | None:
    """Where the last answer of a conversation begins among its tokens; None: it does not end with one, or its template writes
    what is before otherwise than in a prompt."""
    messages = document.content
    if isinstance(messages, str) or len(messages) < 2 or messages[-1]["role"] != "assistant":
        return None
    asked = without_beginning(encoder.encode(document._replace(content=messages[:-1]), as_prompt=True), begin)
    return len(asked) if len(asked) < len(tokens) and np.array_equal(tokens[: len(asked)], asked) else None


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
    tokens: np.ndarray,
    count: int,
    length: int,
    seed: int,
    *,
    document_starts: Sequence[int] = (0,),
    beginning: Sequence[int] = (),
) -> Int[np.ndarray, "count length"]:
    """`count` windows of `length` tokens spread over the whole stream; they overlap where the stream is short.

    Each is a text of its own to a network, at position 0, so each begins as the tokenizer begins a text, wherever it is cut:
    networks that were trained with a begin-of-text token are lost without it.

    Args:
        document_starts: where documents begin, 0 first; a window lies within one of them.
        beginning: first tokens of every window, which count among its `length`; text follows them.
    Returns:
        int32 "count length".
    Raises:
        InputError: no document holds a window, or a window no text.
    Source: llama.cpp's perplexity, which sets the begin-of-text token in the first place of every chunk.
    """
    cut = _Cut.of(tokens, length, document_starts, beginning)
    if not cut.num_places:
        prompt_starts(cut.longest, count, cut.length, seed)  # says what is too short
    return cut.windows(prompt_starts(cut.num_places - 1 + cut.length, count, cut.length, seed))


def windows_between(
    tokens: np.ndarray,
    count: int,
    length: int,
    seed: int,
    *,
    document_starts: Sequence[int] = (0,),
    beginning: Sequence[int] = (),
) -> Int[np.ndarray, "found length"]:
    """Windows midway between those of `windows` with the same arguments, none of which shares a token of text with them.

    Returns:
        int32 "found length": `count` less one, fewer where the stream is short, perhaps none.
    """
    cut = _Cut.of(tokens, length, document_starts, beginning)
    if not cut.num_places:
        return np.zeros((0, length), np.int32)
    others = prompt_starts(cut.num_places - 1 + cut.length, count, cut.length, seed)
    # Places of one document follow each other as its tokens do; windows of two documents never share a token.
    apart = np.diff(others) >= 2 * cut.length
    return cut.windows((others[:-1] + np.diff(others) // 2)[apart])


class _Cut(NamedTuple):
    """Where windows of one length may lie in a stream: places at which they may begin, counted over all documents.

    Attributes:
        length: tokens of text in each.
        begin, sizes: first token of each document, and its tokens.
        beginning: tokens before the text of each.
    """

    tokens: np.ndarray
    length: int
    begin: np.ndarray
    sizes: np.ndarray
    beginning: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, length: int, document_starts: Sequence[int], beginning: Sequence[int]) -> _Cut:
        """Args: as for `windows`."""
        if length <= len(beginning):
            raise InputError(
                f"windows of {length} {'token' if length == 1 else 'tokens'} came; this tokenizer begins each text with "
                f"{len(beginning)}, and text must follow: ask for {len(beginning) + 1} or more"
            )
        begin, room = np.asarray(document_starts), length - len(beginning)
        return cls(tokens, room, begin, np.diff(np.append(begin, len(tokens))), np.asarray(beginning, np.int32))

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
        starts = self.begin[document] + places - (upto - self.places)[document]
        return _begun_windows(self.tokens, starts, self.length, self.beginning)


def _begun_windows(
    tokens: np.ndarray, starts: np.ndarray, length: int, beginning: Sequence[int] | np.ndarray
) -> Int[np.ndarray, "count token"]:
    """`length` tokens from each start on, behind those that begin each text."""
    text = tokens[starts[:, None] + np.arange(length)].astype(np.int32)
    return np.concatenate([np.tile(np.asarray(beginning, np.int32), (len(text), 1)), text], axis=1)
