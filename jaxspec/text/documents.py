"""Documents of a JSON lines file: one JSON object per line, with a text or with the messages of a conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jaxspec.errors import InputError, one_line
from jaxspec.files import parse_json
from jaxspec.models.chat_template import ChatTemplate
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.settings.coercion import shown

__all__ = ["Document", "Encoder", "check_plain", "is_json_lines", "parse_documents"]

#: Endings of names of JSON lines files.
_ENDINGS = (".jsonl", ".ndjson")

#: Keys that hold a document, in the order in which they are looked for: of texts, and of prompts to go on from.
_KEYS, _PROMPT_KEYS = ("messages", "text", "prompt"), ("prompt", "messages", "text")

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
    content = value[key]
    if isinstance(content, str) and key != "messages":
        _check_text(content, f"{where}: {key}")
    elif isinstance(content, list) and key != "text":
        _check_messages(content, f"{where}: {key}")
    else:
        raise InputError(f"{where}: {key} is of type {type(content).__name__}; {_FORM}")
    category = value.get("category")
    return Document(where, content, len(line), category if isinstance(category, str) else "")


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
