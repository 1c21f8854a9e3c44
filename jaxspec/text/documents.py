"""Documents of a JSON lines file: one JSON object per line, with a text or with the messages of a conversation."""

from __future__ import annotations

import codecs
import itertools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jaxspec.errors import InputError, one_line
from jaxspec.models.chat_template import ChatTemplate
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.partial_files import parse_json
from jaxspec.settings.coercion import shown

__all__ = [
    "STDLIB",
    "Document",
    "Encoder",
    "Halves",
    "check_plain",
    "check_text",
    "is_json_lines",
    "parse_documents",
    "read_halves",
    "read_text_file",
]

#: Endings of names of JSON lines files.
_ENDINGS = (".jsonl", ".ndjson")

#: Keys of conversations as public sets of questions have them: MT-Bench's and Spec-Bench's turns of a user, ShareGPT's.
_TURNS, _SHARED = "turns", "conversations"

#: Keys that hold a document, in the order in which they are looked for: of texts, and of prompts to go on from.
_KEYS, _PROMPT_KEYS = (
    ("messages", "text", "prompt", _TURNS, _SHARED),
    ("prompt", "messages", "text", _TURNS, _SHARED),
)

#: ShareGPT's words for the keys of messages, and for who speaks.
_SHARED_KEYS, _SPEAKERS = {"from": "role", "value": "content"}, {"human": "user", "gpt": "assistant"}

_FORM = 'give {"text": "..."}, {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'


class Document(NamedTuple):
    """One document.

    Attributes:
        where: its file and line, for messages.
        content: its text; or the messages of a conversation, each with "role" and "content".
        size: bytes of its line.
        category: under which results count it; empty: none.
    """

    where: str
    content: str | list[dict[str, Any]]
    size: int
    category: str = ""


class Encoder(NamedTuple):
    """From documents to token ids.

    Attributes:
        chat: of the checkpoint; None: it has none, and conversations are refused.
    """

    tokenizer: Tokenizer
    chat: ChatTemplate | None = None

    def encode(self, document: Document, *, as_prompt: bool) -> Int[np.ndarray, " token"]:
        """Token ids of a document: a text as the tokenizer begins one, a conversation as its template writes it.

        Args:
            as_prompt: a conversation that does not end with an assistant's message goes on where the answer begins.
        Raises:
            InputError: a conversation without a template, or one that the template refuses; a text that cannot be encoded.
        """
        content = document.content
        try:
            if isinstance(content, str):
                return self.tokenizer.encode(content)
            if self.chat is None:
                raise InputError("it has messages, and the model has no chat template: give text or prompt instead")
            begin_answer = as_prompt and content[-1]["role"] != "assistant"
            # The template writes the special tokens itself.
            return self.tokenizer.encode(self.chat.render(content, begin_answer=begin_answer), special_tokens=False)
        except InputError as error:
            raise InputError(f"{document.where}: {error}") from error


def is_json_lines(source: str) -> bool:
    """Whether a file is read as JSON lines, by the ending of its name."""
    return Path(source).suffix.lower() in _ENDINGS


def check_plain(source: str, data: bytes, what: str, read_as: str) -> None:
    """A file that by its name is text holds no documents of JSON, whose braces and keys would be taken for text.

    Args:
        data: its content. what: errors call it. read_as: what they say that a file of this name is read as.
    Raises:
        InputError: it does.
    """
    if not is_json_lines(source) and _holds_documents(data):
        raise InputError(
            f"{what} holds JSON, and a file of this name is read as text, {read_as}; give one object on each line of a file "
            "that ends in .jsonl"
        )


def _holds_documents(data: bytes) -> bool:
    """Whether a file's content is JSON, whatever its name is: an object with a document, on the first line or as a whole, or a
    list of objects of any kind as a whole.
    """
    first = next((line for line in data.split(b"\n") if line.strip()), b"")
    parsed = _json_of(first)
    begun = first.lstrip().startswith((b"[", b"{")) and not isinstance(parsed, dict)
    whole = _json_of(data) if begun else None
    document = lambda value: isinstance(value, dict) and not value.keys().isdisjoint(_KEYS)
    objects = isinstance(whole, list) and any(isinstance(entry, dict) for entry in whole)
    return document(parsed) or document(whole) or objects


def _json_of(text: bytes) -> Any:
    """What a text of JSON holds; None where it is none."""
    try:
        return parse_json(text.decode("utf-8"))
    except ValueError:
        return None


def parse_documents(data: bytes, what: str, *, as_prompts: bool = False) -> list[Document]:
    """The documents of a file's content, in UTF-8; empty lines are left out.

    Args:
        what: what errors call the file.
        as_prompts: of a line that has a prompt and more, take the prompt.
    Raises:
        InputError: a line that is no document, named by its number; no document at all.
    """
    # Not `splitlines`, which also cuts at characters that may stand within a JSON text.
    lines = data.split(b"\n")
    keys = _PROMPT_KEYS if as_prompts else _KEYS
    documents = [_document(line, f"{what}, line {i}", keys) for i, line in enumerate(lines, start=1) if line.strip()]
    if not documents:
        raise InputError(f"{what} has no document; {_FORM} on each line")
    return documents


def _document(line: bytes, where: str, keys: tuple[str, ...]) -> Document:
    try:
        value = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"{where} is no JSON ({one_line(error)}); {_FORM}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where} is a JSON {type(value).__name__}; {_FORM}")
    key = next((key for key in keys if key in value), None)
    if key is None:
        raise InputError(f"{where} has {', '.join(map(shown, list(value)[:4])) or 'nothing in it'}; {_FORM}")
    content = _as_messages(key, value[key])
    if isinstance(content, str) and key in ("text", "prompt"):
        _check_text(content, f"{where}: {key}")
    elif isinstance(content, list) and key != "text":
        _check_messages(content, f"{where}: {key}")
    else:
        raise InputError(f"{where}: {key} is of type {type(content).__name__}; {_FORM}")
    category = value.get("category")
    return Document(where, content, len(line), category if isinstance(category, str) else "")


def _as_messages(key: str, content: Any) -> Any:
    """A conversation of another form as messages; of a user's turns the first, as what follows would answer an answer."""
    if key == _TURNS and isinstance(content, list) and content and isinstance(content[0], str):
        return [{"role": "user", "content": content[0]}]
    if key == _SHARED and isinstance(content, list) and all(isinstance(said, dict) for said in content):
        named = [{_SHARED_KEYS.get(name, name): value for name, value in said.items()} for said in content]
        speaker = lambda role: _SPEAKERS.get(role, role) if isinstance(role, str) else role
        return [{name: speaker(value) if name == "role" else value for name, value in said.items()} for said in named]
    return content


def _check_text(text: str, where: str) -> None:
    if not text:
        raise InputError(f"{where} is empty; leave the line out, or give a text")
    if "\0" in text:
        raise InputError(f"{where} has a zero character; give plain text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} has half a surrogate pair at character {error.start}; give whole characters"
        ) from error


def _check_messages(messages: list[Any], where: str) -> None:
    if not messages:
        raise InputError(f"{where} is an empty list; {_FORM}")
    for i, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            raise InputError(f"{where}, message {i} has no role or no content; {_FORM}")
        if isinstance(message["content"], str) and message["content"]:
            _check_text(message["content"], f"{where}, message {i}")
        try:
            # Templates read whatever else is there: the role, parts of contents, calls of tools.
            json.dumps(message, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{where}, message {i} has half a surrogate pair; give whole characters") from error


# A file of text that a user gives: checked for being text and long enough, and cut into two halves.

#: Stands for the committed snapshot.
STDLIB = "stdlib"

#: Byte-order marks of other encodings; that of UTF-32 begins with that of UTF-16.
_WIDE = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}

_HALVES = ("first half, which calibrates,", "second half, which is held out,")


class Halves(NamedTuple):
    """Documents that calibrate, and those that are held out; neither is empty of bytes unless a file has one byte."""

    calibration: list[Document]
    held_out: list[Document]

    @property
    def bytes(self) -> tuple[int, int]:
        """Of each half."""
        return tuple(sum(document.size for document in half) for half in self)  # pyright: ignore[reportReturnType]


def read_text_file(source: str, what: str, otherwise: str) -> bytes:
    """Content of a file of UTF-8 text without zero bytes: a network of bytes would take anything, and its numbers would mean
    nothing. A byte-order mark is left out.

    Args:
        what: the setting that names it, for messages. otherwise: what may be given instead.
    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8 text.
    """
    # A run reads its files several times, and its digests are of files: a pipe gives its text once, some devices never end.
    if os.path.exists(source) and not os.path.isfile(source):
        kind = "a directory" if os.path.isdir(source) else "a pipe or a device"
        raise InputError(f"{what} {source!r} cannot be read: it is {kind}; give {otherwise} or a readable text file")
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{what} {source!r} cannot be read ({reason}); give {otherwise} or a readable text file"
        ) from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{what} {source!r} is empty; give {otherwise} or a text file with something in it")
    if wide := next((name for name, mark in _WIDE.items() if data.startswith(mark)), None):
        raise InputError(f"{what} {source!r} is {wide}; allowed is UTF-8: convert it, with iconv for example")
    line = lambda place: data.count(b"\n", 0, place) + 1
    if (place := data.find(b"\0")) >= 0:
        raise InputError(
            f"{what} {source!r} is binary: byte {place} is zero (line {line(place)}); give a plain text file in UTF-8"
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} {source!r} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}, line "
            f"{line(error.start)}); give a plain text file in UTF-8, or convert it"
        ) from error
    return data


def read_halves(source: str) -> Halves:
    """The two halves of a file.

    Raises:
        InputError: see `read_text_file` and `parse_documents`; a JSON lines file of a single document; documents of JSON in a
            file that by its name is text.
    """
    data, what = read_text_file(source, "text", repr(STDLIB)), f"text {source!r}"
    if is_json_lines(source):
        return _between_documents(parse_documents(data, what), source)
    check_plain(source, data, what, "keys and braces too")
    parts = _between_lines(data)
    return Halves(*([Document(what, part.decode("utf-8"), len(part))] for part in parts))


def _between_lines(data: bytes) -> tuple[bytes, bytes]:
    """Cut at a line end near the middle, or else between two characters."""
    # So that no half is a torn word: the first line end behind the middle, or the last before it.
    half = len(data) // 2
    middle = data.find(b"\n", half) + 1
    if middle in (0, len(data)):
        middle = data.rfind(b"\n", 0, half) + 1 or _character(data, half)
    return data[:middle], data[middle:]


def _between_documents(documents: list[Document], source: str) -> Halves:
    """Cut behind the document that the middle lies in."""
    if len(documents) < 2:
        raise InputError(
            f"text {source!r} has one document, and its halves are cut between documents; give two or more, or a text file"
        )
    upto = list(itertools.accumulate(document.size for document in documents))
    middle = next(i for i, size in enumerate(upto, start=1) if 2 * size >= upto[-1])
    middle = min(middle, len(documents) - 1)
    return Halves(documents[:middle], documents[middle:])


def _character(data: bytes, place: int) -> int:
    """The place itself or, inside a character, where the next one begins."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def check_text(source: str, needed: tuple[int, int]) -> None:
    """Refuse a text before any work that needs it: one that is not text, or has fewer bytes than tokens are needed.

    Args:
        source: "stdlib", which is always good, or a file.
        needed: tokens of one window of calibration text and of held-out text.
    Raises:
        InputError: it cannot be used.
    """
    if source != STDLIB:
        halves = read_halves(source)
        if not is_json_lines(source):  # a template may write more than a line's bytes
            check_lengths(source, halves.bytes, halves.bytes, needed)


def check_lengths(source: str, size: tuple[int, int], lengths: tuple[int, int], needed: tuple[int, int]) -> None:
    """Both halves of a user's text must hold a window each.

    Args:
        size: bytes of the halves. lengths: their tokens.
        needed: tokens of one window of each.
    Raises:
        InputError: one half is too short.
    """
    for name, tokens, window in zip(_HALVES, lengths, needed):
        if tokens < window:
            total, per_token = sum(size), max(1.0, sum(size) / max(1, sum(lengths)))
            raise InputError(
                f"text {source!r} has {total} bytes, too few: its {name} has {tokens} tokens at most and one window "
                f"needs {window}; give a text of {round(2 * per_token * max(needed))} bytes or more, or ask for shorter windows"
            )
