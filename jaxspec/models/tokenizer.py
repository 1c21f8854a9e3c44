"""From text to token ids and back: bytes as they are, or a `tokenizer.json` (optional package `tokenizers`)."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from jaxspec.errors import InputError, one_line
from jaxspec.models.gguf import check_tokenizer, is_gguf, open_gguf
from jaxspec.models.special_tokens import read_beside

__all__ = [
    "ByteTokenizer",
    "JsonTokenizer",
    "Tokenizer",
    "Vocabulary",
    "beginning",
    "load_tokenizer",
    "shared_vocabulary",
    "vocabulary_beside",
]

#: Stands for bytes that are no UTF-8.
_NO_CHARACTER = "\ufffd"

#: Files that hold a tokenizer in another form -> the form.
_OTHER_FILES = {
    "tiktoken.model": "tiktoken",
    "tokenizer.model": "SentencePiece or tiktoken",
    "tekken.json": "Mistral's",
}

#: A text that every tokenizer has.
_LETTER = "a"

#: A text with most of the bytes that UTF-8 has.
_MANY_BYTES = "".join(map(chr, range(1 << 11))) + "漢🙂"


class Tokenizer(Protocol):
    """What a network needs of a tokenizer; ids lie in [0, vocab_size) of the network it was loaded for."""

    @property
    def of_bytes(self) -> bool:
        """Whether each token is the byte of its number."""
        ...

    def encode(self, text: str | bytes, *, special_tokens: bool = True) -> Int[np.ndarray, " token"]:
        """Token ids of a text, int32; bytes are UTF-8 unless the tokenizer's tokens are bytes.

        Args:
            special_tokens: add those that the tokenizer puts around a text, as a begin-of-text token. Special tokens within the
                text are told in any case.
        """
        ...

    def token_id(self, token: str) -> int | None:
        """Id of one token by its text; None where no token is called so."""
        ...

    def decode(self, ids: Any) -> str:
        """Text of token ids; bytes that are no UTF-8 become U+FFFD, for ids may end inside a character."""
        ...

    def continuation(self, ids: Any) -> str:
        """Text of token ids that stand behind others: many files drop the space that a whole text begins with."""
        ...

    def num_bytes(self, ids: Any, *, behind: int = 0) -> int:
        """Bytes of the text of token ids, which may begin and end inside a character; of those behind the first `behind`."""
        ...


class ByteTokenizer:
    """The identity on UTF-8 bytes: 256 tokens, none of them special."""

    vocab_size = 256

    @property
    def of_bytes(self) -> bool:
        """See `Tokenizer`."""
        return True

    def encode(self, text: str | bytes, *, special_tokens: bool = True) -> Int[np.ndarray, " token"]:
        """The bytes of `text` as int32 ids.

        Raises:
            InputError: a str with a lone surrogate, which has no UTF-8 form.
        """
        del special_tokens  # there are none
        return np.frombuffer(_utf8(text), np.uint8).astype(np.int32)

    def token_id(self, token: str) -> int | None:
        """See `Tokenizer`: a text of one byte."""
        ids = self.encode(token)
        return int(ids[0]) if ids.size == 1 else None

    def decode(self, ids: Any) -> str:
        """The text of byte ids.

        Raises:
            InputError: an id outside [0, 256).
        """
        ids = np.asarray(ids, np.int64).reshape(-1)
        if ids.size and not (ids.min() >= 0 and ids.max() < self.vocab_size):
            raise InputError(
                f"token ids from {ids.min()} to {ids.max()} came; a byte is 0 to 255: check the model's vocab_size"
            )
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def continuation(self, ids: Any) -> str:
        """See `Tokenizer`: the text of these bytes. Raises InputError as `decode` does."""
        return self.decode(ids)

    def num_bytes(self, ids: Any, *, behind: int = 0) -> int:
        """See `Tokenizer`: as many as ids."""
        return max(np.asarray(ids).size - behind, 0)


class JsonTokenizer:
    """A `tokenizer.json`.

    Encoding adds the special tokens that the file's own post-processor adds (a begin-of-text token, say), since the
    network was trained with them; decoding leaves special tokens out. As in `transformers` 5, `add_bos_token` of
    tokenizer_config.json changes nothing beside a tokenizer.json.

    Raises:
        InputError: the `tokenizers` package is missing, or the file is none of its own.
    """

    def __init__(self, content: bytes, path: Path, *, vocab_size: int):
        try:
            import tokenizers  # pyright: ignore[reportMissingImports] - optional
        except ImportError as error:
            raise InputError(
                f"{path} needs the package tokenizers, which is not installed; run: pip install 'jaxspec[tokenizers]'"
            ) from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the package raises bare Exception, with the reason in its text
            reason = one_line(error)
            raise InputError(f"{path} is no readable tokenizer.json ({reason}); fetch it again") from error
        # Settings of the last training run may lie in the file; they would cut long texts without a word.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._path, self.vocab_size = path, vocab_size

    def encode(self, text: str | bytes, *, special_tokens: bool = True) -> Int[np.ndarray, " token"]:
        """Ids of `text`, int32; see `Tokenizer`.

        Raises:
            InputError: bytes that are no UTF-8, or a token that the network has no embedding for.
        """
        try:
            text = _utf8(text).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"text is not UTF-8 ({error}); {self._path} takes UTF-8 only: convert the text") from error
        ids = np.asarray(self._tokenizer.encode(text, add_special_tokens=special_tokens).ids, np.int32)
        if ids.size and ids.max() >= self.vocab_size:
            # An index beyond the embedding would be clamped silently inside jit.
            raise InputError(
                f"{self._path} gave token {ids.max()}; the network has {self.vocab_size}: "
                "use the tokenizer it was trained with"
            )
        return ids

    @property
    def of_bytes(self) -> bool:
        """See `Tokenizer`; a file may number the 256 bytes in another way, or have joined some."""
        return self._numbers_bytes

    @functools.cached_property
    def _numbers_bytes(self) -> bool:
        found = self._tokenizer.encode(_MANY_BYTES).ids if self.vocab_size == ByteTokenizer.vocab_size else []
        return found == list(_MANY_BYTES.encode())

    def token_id(self, token: str) -> int | None:
        """See `Tokenizer`."""
        found = self._tokenizer.token_to_id(token)
        return found if found is not None and found < self.vocab_size else None

    def decode(self, ids: Any) -> str:
        """The text of ids, without special tokens."""
        return self._tokenizer.decode(np.asarray(ids, np.int64).reshape(-1).tolist())

    def continuation(self, ids: Any) -> str:
        """See `Tokenizer`: what these add to the text of a letter."""
        before = self._tokenizer.encode(_LETTER, add_special_tokens=False).ids
        begun = self.decode(before)
        whole = self.decode([*before, *np.asarray(ids, np.int64).reshape(-1).tolist()])
        return whole.removeprefix(begun) if whole.startswith(begun) else self.decode(ids)

    def num_bytes(self, ids: Any, *, behind: int = 0) -> int:
        """See `Tokenizer`; what is no whole character counts one byte for each U+FFFD, so that an end may lack up to two."""
        return self._num_bytes(ids) - self._num_bytes(np.asarray(ids)[:behind])

    def _num_bytes(self, ids: Any) -> int:
        text = self.decode(ids)
        return len(text.encode()) - text.count(_NO_CHARACTER) * (len(_NO_CHARACTER.encode()) - 1)


def _utf8(text: str | bytes) -> bytes:
    try:
        return text.encode("utf-8") if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as error:
        raise InputError(f"text has no UTF-8 form ({error.reason} at {error.start}); give it as bytes") from error


def load_tokenizer(directory: Path, *, vocab_size: int) -> Tokenizer:
    """The tokenizer of a directory or container: its tokenizer.json, or bytes where there is none and the vocabulary is 256.

    Raises:
        InputError: no tokenizer.json and another vocabulary, with what other file there is; see also `JsonTokenizer`.
    """
    path = directory / "tokenizer.json"
    content = read_beside(directory, path.name)
    if content is not None:
        return JsonTokenizer(content, path, vocab_size=vocab_size)
    if vocab_size == ByteTokenizer.vocab_size:
        return ByteTokenizer()
    if is_gguf(directory):
        check_tokenizer(open_gguf(directory).metadata, directory)
    for name, kind in _OTHER_FILES.items():
        if read_beside(directory, name) is not None:
            raise InputError(
                f"{directory} has its tokenizer in {name} ({kind}) alone, which is not read here; needed is a tokenizer.json "
                "of the same tokens beside it: convert the file, or copy one from another release of the network (without "
                "any, load_directory in Python still runs the network on token ids)"
            )
    raise InputError(
        f"{directory} has no tokenizer.json and a vocabulary of {vocab_size}; without the file only a vocabulary of "
        f"{ByteTokenizer.vocab_size} (bytes) can be read: copy tokenizer.json from the model's release"
    )


def beginning(tokenizer: Tokenizer) -> Int[np.ndarray, " token"]:
    """Tokens that a tokenizer puts before every text, as a begin-of-text token; none of bytes."""
    whole, plain = tokenizer.encode(_LETTER), tokenizer.encode(_LETTER, special_tokens=False)
    places = range(len(whole) - len(plain) + 1)
    return whole[: next((i for i in places if np.array_equal(whole[i : i + len(plain)], plain)), 0)]


# Whether a draft and its target mean the same by every token: sizes, tokenizers by name, or the files of both.

#: The largest difference of vocabularies that llama.cpp takes; common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
_LLAMA_CPP_DIFFERENCE = 128


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens of a network.

    Attributes:
        called: for messages, as in "draft 'x'".
        size: rows of its embedding, padding among them.
        tokenizer: its name; "a/b" has the tokens of "a" and further ones behind them. None: not known.
        content: of its tokenizer.json; None: there is none at hand.
    """

    called: str
    size: int
    tokenizer: str | None = None
    content: bytes | None = None

    def __str__(self) -> str:
        """In words."""
        named = "" if self.tokenizer is None else f" (tokenizer {self.tokenizer})"
        return f"{self.called} has a vocabulary of {self.size:,}{named}"


def vocabulary_beside(called: str, size: int, place: Path) -> Vocabulary:
    """The vocabulary of a network in a directory or container: its tokenizer.json, or bytes where there is none and none is
    needed.

    Raises:
        InputError: see `read_beside`.
    """
    content = read_beside(place, "tokenizer.json")
    is_bytes = content is None and size == ByteTokenizer.vocab_size
    return Vocabulary(called, size, "bytes" if is_bytes else None, content)


def shared_vocabulary(draft: Vocabulary, target: Vocabulary) -> tuple[str, ...]:
    """What a user should know of a pair whose tokens are the same.

    Rows may differ: those behind a tokenizer's last token are padding, for which every engine has a rule of its own.

    Raises:
        InputError: tokens differ, or sizes differ and nobody knows of tokens that are the same.
    """
    advice = "a draft needs the target's tokens: give a network of the target's family, or a head made for it"
    both = f"{draft}, {target}"
    if draft.content is not None and target.content is not None:
        return (*_by_files(draft, target, advice), *_padding(draft, target))
    if draft.tokenizer is not None and target.tokenizer is not None:
        names = sorted((draft.tokenizer, target.tokenizer), key=len)
        if names[0] != names[1] and not names[1].startswith(f"{names[0]}/"):
            raise InputError(f"{both}; {advice}")
        further = (
            f"{both}: one tokenizer is the other with further tokens, which are not drafted; SGLang and llama.cpp "
            "refuse such pairs",
        )
        return (*(further if names[0] != names[1] else ()), *_padding(draft, target))
    silent = " and ".join(one.called for one in (draft, target) if one.content is None)
    if draft.size != target.size:
        raise InputError(
            f"{both}; {advice} (where one tokenizer serves both and rows are padded, put its tokenizer.json beside each "
            "config.json)"
        )
    return (
        f"vocabularies of {draft.called} and {target.called} are of equal size, {target.size:,}; whether their tokens are the "
        f"same was not compared, without a tokenizer.json of {silent}",
    )


class _Tokens(NamedTuple):
    """Of a tokenizer.json: id -> text, ids of special tokens, and how text is cut into them."""

    texts: dict[int, str]
    special: set[int]
    cutting: list[Any]


def _tokens_of(one: Vocabulary) -> _Tokens:
    try:
        document = json.loads(one.content or b"")
        model, added = document["model"], document.get("added_tokens") or []
        vocab = model["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((piece[0], i) for i, piece in enumerate(vocab))
        texts = {int(i): str(text) for text, i in pairs} | {int(token["id"]): token["content"] for token in added}
        special = {int(token["id"]) for token in added if token.get("special")}
        merges = [m.split(" ", 1) if isinstance(m, str) else list(m) for m in model.get("merges") or []]
        cutting = [merges, document.get("normalizer"), document.get("pre_tokenizer")]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"tokenizer.json of {one.called} is not readable ({error!r}); fetch it again") from error
    return _Tokens({i: text for i, text in texts.items() if i < one.size}, special, cutting)


def _by_files(draft: Vocabulary, target: Vocabulary, advice: str) -> tuple[str, ...]:
    if draft.content == target.content:
        return ()
    own, wanted = _tokens_of(draft), _tokens_of(target)
    other = [i for i, text in wanted.texts.items() if own.texts.get(i, text) != text]
    shown = lambda i: f"{i} is {own.texts[i]!r} and {wanted.texts[i]!r}"
    ordinary = [i for i in other if i not in own.special or i not in wanted.special]
    if ordinary:
        raise InputError(
            f"{draft.called} and {target.called} have different tokens by their tokenizer.json: {shown(min(ordinary))} "
            f"({len(ordinary):,} of {len(wanted.texts):,} differ); {advice}"
        )
    notes = []
    if other:
        notes.append(
            f"special tokens of {draft.called} and {target.called} differ: {shown(min(other))} ({len(other):,} in all)"
        )
    if missing := sum(i not in own.texts for i in wanted.texts):
        notes.append(
            f"{missing:,} of {len(wanted.texts):,} tokens of {target.called} are none of {draft.called}'s, which never drafts "
            "them"
        )
    if own.cutting != wanted.cutting:
        notes.append(
            f"tokenizers of {draft.called} and {target.called} have the same tokens and cut text into them in different ways "
            "(merges, normalizer or pre-tokenizer): fewer tokens may be accepted"
        )
    if notes:
        notes.append("SGLang and llama.cpp refuse tokenizers that differ at all")
    return tuple(notes)


def _padding(draft: Vocabulary, target: Vocabulary) -> tuple[str, ...]:
    """What engines do where rows differ.

    Source: vLLM, SpeculativeConfig.verify_equal_vocab_size_if_draft_model (0.15) and use_heterogeneous_vocab (0.25.1); SGLang,
    StandaloneWorker._validate_vocab_compatibility (2026); transformers, universal assisted decoding (4.46).
    """
    if draft.size == target.size:
        return ()
    fits, change = abs(draft.size - target.size) <= _LLAMA_CPP_DIFFERENCE, "pad" if draft.size < target.size else "cut"
    return (
        f"{draft}, {target}: one tokenizer, whose rows are padded differently. vLLM and SGLang refuse unequal sizes: {change} "
        f"the draft's embedding and head to {target.size:,} rows, and set vocab_size of its config.json (vLLM 0.25.1 and later "
        'also takes it unchanged, drafting greedily, with "use_heterogeneous_vocab": true); llama.cpp '
        f"{'takes' if fits else 'refuses'} it, as the sizes differ by {'at most' if fits else 'more than'} "
        f"{_LLAMA_CPP_DIFFERENCE}; transformers takes it where both tokenizers are given",
    )
